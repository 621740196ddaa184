#include "scheduler/step_run.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "scheduler/fair_links.h"

namespace weft::scheduler {
namespace {

class Run {
 public:
  Run(const StepGraph& graph, const Transfers& transfers, bool updates_first, int steps)
      : graph_(graph),
        transfers_(transfers.all()),
        updates_first_(updates_first),
        tasks_(static_cast<std::int32_t>(graph.tasks.size())),
        steps_(steps),
        links_(transfers.links()),
        devices_(graph.lanes.size(), {-1, -1}) {
    const std::size_t runs = graph.tasks.size() * static_cast<std::size_t>(steps);
    times_ = {std::vector<double>(runs, 0), std::vector<double>(runs, -1),
              std::vector<std::int32_t>(runs, -1)};
    waits_.resize(runs);
  }

  StepTimes Go() {
    for (std::int32_t run = 0; run < tasks_ * steps_; ++run) {
      const std::int32_t task = run % tasks_;
      waits_[run] =
          graph_.same_step.waits(task) + (run < tasks_ ? 0 : graph_.next_step.waits(task));
      if (waits_[run] == 0) ready_.push_back(run);
    }
    for (Advance(); !events_.empty(); Advance()) {
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        if (jobs_[event.job].version == event.version) Handle(event.job);
      }
    }
    return std::move(times_);
  }

 private:
  // Of a task that takes time and is under way.
  struct Job {
    std::int32_t run = -1;
    int version = 0;
    int transfer = -1;  // in links_, once it is on them
    double left = 0;    // seconds at full rate
    double rate = -1;   // part of the full one; -1: none yet
    double since = 0;   // when `left` and `rate` were these
  };
  struct Event {
    double time;
    std::int32_t run;
    int job;
    int version;
    bool operator>(const Event& other) const {
      return std::tie(time, run) > std::tie(other.time, other.run);
    }
  };

  const StepTask& TaskOf(std::int32_t run) const { return graph_.tasks[run % tasks_]; }

  // Begins what can, ends what takes no time, and deals out links and devices.
  void Advance() {
    while (!ready_.empty()) {
      const std::int32_t run = ready_.back();
      ready_.pop_back();
      Begin(run);
    }
    for (const auto& [transfer, rate] : links_.Settle()) SetRate(job_of_transfer_[transfer], rate);
    for (const int rank : touched_) ShareDevice(rank);
    touched_.clear();
  }

  void Begin(std::int32_t run) {
    const StepTask& task = TaskOf(run);
    times_.begin[run] = now_;
    if (task.seconds <= 0) {
      End(run);
      return;
    }
    const int job = NewJob(run);
    if (task.transfer < 0) {
      jobs_[job].left = task.seconds;
      devices_[task.rank][task.lane == Lane::kCaller ? 1 : 0] = job;
      touched_.push_back(task.rank);
      return;
    }
    const Transfer& transfer = transfers_[task.transfer];
    jobs_[job].left = transfer.seconds - transfer.latency;
    if (transfer.latency > 0) {
      events_.push({now_ + transfer.latency, run, job, jobs_[job].version});
    } else {
      Enter(job, transfer);
    }
  }

  void Enter(int job, const Transfer& transfer) {
    const int id = links_.Begin(transfer.uses, transfer.full_rate);
    jobs_[job].transfer = id;
    if (id >= static_cast<int>(job_of_transfer_.size())) job_of_transfer_.resize(id + 1);
    job_of_transfer_[id] = job;
  }

  void End(std::int32_t run) {
    times_.end[run] = now_;
    const std::int32_t task = run % tasks_;
    for (const std::int32_t next : graph_.same_step.Of(task)) Release(run - task + next, run);
    if (run - task + tasks_ >= tasks_ * steps_) return;
    for (const std::int32_t next : graph_.next_step.Of(task)) {
      Release(run - task + tasks_ + next, run);
    }
  }

  void Release(std::int32_t run, std::int32_t by) {
    if (--waits_[run] > 0) return;
    times_.cause[run] = by;
    ready_.push_back(run);
  }

  // Its latency, or all of it, is over.
  void Handle(int id) {
    Job& job = jobs_[id];
    const StepTask& task = TaskOf(job.run);
    const bool transfers = task.transfer >= 0;
    if (transfers && job.transfer < 0 && job.left > 0) {
      Enter(id, transfers_[task.transfer]);
      return;
    }
    if (job.transfer >= 0) links_.End(job.transfer);
    if (!transfers) {
      devices_[task.rank][task.lane == Lane::kCaller ? 1 : 0] = -1;
      touched_.push_back(task.rank);
    }
    const std::int32_t run = job.run;
    ++job.version;
    free_.push_back(id);
    End(run);
  }

  int NewJob(std::int32_t run) {
    int id = static_cast<int>(jobs_.size());
    if (free_.empty()) {
      jobs_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    jobs_[id] = {.run = run, .version = jobs_[id].version + 1};
    return id;
  }

  void ShareDevice(int rank) {
    const auto [compute, trainer] = devices_[rank];
    const bool both = compute >= 0 && trainer >= 0;
    if (compute >= 0) SetRate(compute, both && !updates_first_ ? 0.5 : 1);
    if (trainer >= 0) SetRate(trainer, !both ? 1 : updates_first_ ? 0 : 0.5);
  }

  void SetRate(int id, double rate) {
    Job& job = jobs_[id];
    if (job.rate == rate) return;
    const bool first = job.rate < 0;
    if (!first) job.left = std::max(0.0, job.left - (now_ - job.since) * job.rate);
    job.since = now_;
    job.rate = rate;
    ++job.version;
    if (rate <= 0) return;
    // So that what is never slowed down takes its time to the last bit.
    const double end = first && rate == 1 ? times_.begin[job.run] + TaskOf(job.run).seconds
                                          : now_ + job.left / rate;
    events_.push({std::max(end, now_), job.run, id, job.version});
  }

  const StepGraph& graph_;
  const std::vector<Transfer>& transfers_;
  const bool updates_first_;
  const std::int32_t tasks_;
  const int steps_;
  FairLinks links_;
  std::vector<std::array<int, 2>> devices_;  // by rank: jobs of the compute lane and the trainer
  StepTimes times_;
  std::vector<std::int32_t> waits_;
  std::vector<std::int32_t> ready_;
  std::vector<int> touched_;  // ranks whose device someone has taken or left
  std::vector<Job> jobs_;
  std::vector<int> free_;
  std::vector<int> job_of_transfer_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;
};

}  // namespace

StepTimes RunSteps(const StepGraph& graph, const Transfers& transfers, bool updates_first,
                   int steps) {
  return Run(graph, transfers, updates_first, steps).Go();
}

}  // namespace weft::scheduler
