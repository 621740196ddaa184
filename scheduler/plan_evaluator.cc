#include "weft/plan_evaluator.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "scheduler/op_seconds.h"
#include "scheduler/step_graph.h"
#include "scheduler/step_run.h"
#include "scheduler/transfers.h"

namespace weft {
namespace {

using scheduler::StepGraph;
using scheduler::StepTask;
using scheduler::StepTimes;

// The first finds everything idle, and after the last nothing comes: the one between them counts.
constexpr int kSteps = 3;

absl::Status CheckSeconds(const char* what, const std::vector<double>& seconds,
                          std::size_t matrices) {
  if (!seconds.empty() && seconds.size() != matrices) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the trainer's ", what, " seconds are ", seconds.size(), ", the matrices ", matrices, "."));
  }
  for (const double each : seconds) {
    if (std::isfinite(each) && each >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("the trainer's ", what, " seconds have ", each,
                                                   "; they must be finite and not negative."));
  }
  return absl::OkStatus();
}

absl::Status Check(const Plan& plan, const CostModel& model, const TrainerModel& trainer,
                   std::size_t work) {
  const ProcessGrid& grid = plan.topology.grid;
  const ProcessGrid& costs = model.topology().grid;
  if (grid != costs) {
    return absl::InvalidArgumentError(
        absl::StrCat("the costs are for a grid of ", costs.nodes, " x ", costs.ranks_per_node,
                     ", the plan is for ", grid.nodes, " x ", grid.ranks_per_node, "."));
  }
  const std::size_t matrices = plan.matrices.size();
  if (work != 0 && work != matrices) {
    return absl::InvalidArgumentError(
        absl::StrCat("the work is of ", work, " matrices, the plan has ", matrices, "."));
  }
  WEFT_RETURN_IF_ERROR(CheckSeconds("forward", trainer.forward_seconds, matrices));
  WEFT_RETURN_IF_ERROR(CheckSeconds("backward", trainer.backward_seconds, matrices));
  double runs = 0;
  for (const auto& lanes : plan.lanes) {
    double here = 0;
    for (const auto& lane : lanes) here += static_cast<double>(lane.size());
    if (here == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", &lanes - plan.lanes.data(), " has no ops: the plan is not of the whole world."));
    }
    runs += here;
    runs += 2.0 * static_cast<double>(matrices) * plan.limits.passes + 1;
  }
  if (kSteps * runs > std::numeric_limits<std::int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of the plan has ", runs, " runs of ops, too many to follow each."));
  }
  return absl::OkStatus();
}

struct Interval {
  double begin;
  double end;
};

// Reads a prediction off what has run.
class Reading {
 public:
  Reading(const Plan& plan, const StepGraph& graph, const StepTimes& times)
      : plan_(plan),
        graph_(graph),
        times_(times),
        tasks_(static_cast<std::int32_t>(graph.tasks.size())) {
    begin_ = LastClose(kSteps - 2).first;
    std::tie(end_, slowest_) = LastClose(kSteps - 1);
  }

  StepPrediction Read() const {
    StepPrediction prediction;
    prediction.step_seconds = end_ - begin_;
    double most = 0;
    for (std::size_t rank = 0; rank < graph_.lanes.size(); ++rank) {
      prediction.ranks.push_back(ReadRank(rank));
      most = std::max(most, prediction.ranks.back().device);
    }
    prediction.exposed_seconds = std::max(0.0, prediction.step_seconds - most);
    ReadDeliveries(prediction);
    ReadCriticalPath(prediction);
    return prediction;
  }

 private:
  // When the slowest rank closes a step, and which one that is.
  std::pair<double, std::size_t> LastClose(int step) const {
    std::pair<double, std::size_t> last = {-1, 0};
    for (std::size_t rank = 0; rank < graph_.closes.size(); ++rank) {
      const double end = times_.end[step * tasks_ + graph_.closes[rank]];
      if (end > last.first) last = {end, rank};
    }
    return last;
  }

  // Those that take time, inside the step; of a queue, so that they are ascending and apart.
  std::vector<Interval> OnLane(std::size_t rank, Lane lane) const {
    std::vector<Interval> intervals;
    for (int step = 0; step < kSteps; ++step) {
      for (const std::int32_t task : graph_.lanes[rank][static_cast<int>(lane)]) {
        const double begin = std::max(times_.begin[step * tasks_ + task], begin_);
        const double end = std::min(times_.end[step * tasks_ + task], end_);
        if (begin < end) intervals.push_back({begin, end});
      }
    }
    return intervals;
  }

  static double Length(const std::vector<Interval>& intervals) {
    double sum = 0;
    for (const Interval& each : intervals) sum += each.end - each.begin;
    return sum;
  }

  static std::vector<Interval> United(const std::vector<Interval>& a,
                                      const std::vector<Interval>& b) {
    std::vector<Interval> all, united;
    std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all),
               [](const Interval& x, const Interval& y) { return x.begin < y.begin; });
    for (const Interval& each : all) {
      if (united.empty() || each.begin > united.back().end) {
        united.push_back(each);
      } else {
        united.back().end = std::max(united.back().end, each.end);
      }
    }
    return united;
  }

  static double LengthInBoth(const std::vector<Interval>& a, const std::vector<Interval>& b) {
    double sum = 0;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
      sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
      a[i].end < b[j].end ? ++i : ++j;
    }
    return sum;
  }

  RankPrediction ReadRank(std::size_t rank) const {
    RankPrediction read;
    const std::vector<Interval> compute = OnLane(rank, Lane::kCompute);
    const std::vector<Interval> trainer = OnLane(rank, Lane::kCaller);
    const std::vector<Interval> device = United(compute, trainer);
    read.device = Length(device);
    read.busy[static_cast<int>(Lane::kCompute)] = Length(compute);
    read.busy[static_cast<int>(Lane::kCaller)] = Length(trainer);
    for (const Lane lane : {Lane::kIntra, Lane::kInter}) {
      const std::vector<Interval> collectives = OnLane(rank, lane);
      const double busy = Length(collectives);
      read.busy[static_cast<int>(lane)] = busy;
      read.exposed[static_cast<int>(lane)] =
          std::max(0.0, busy - LengthInBoth(collectives, device));
    }
    return read;
  }

  void ReadDeliveries(StepPrediction& prediction) const {
    prediction.delivered_seconds.assign(plan_.matrices.size(), 0);
    std::vector<double> ends(plan_.ops.size(), 0);
    for (std::int32_t task = 0; task < tasks_; ++task) {
      const std::int32_t op = graph_.tasks[task].op;
      if (op < 0) continue;
      const double end = times_.end[(kSteps - 2) * tasks_ + task] - begin_;
      ends[op] = std::max(ends[op], end);
      if (plan_.ops[op].with_next) ends[op + 1] = ends[op];
    }
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      if (plan_.ops[i].trigger == Trigger::kNeeded) continue;
      for (const std::int32_t m : MatricesOf(plan_, plan_.ops[i])) {
        double& delivered = prediction.delivered_seconds[m];
        delivered = std::max(delivered, ends[i]);
      }
    }
  }

  void ReadCriticalPath(StepPrediction& prediction) const {
    for (std::int32_t run = (kSteps - 1) * tasks_ + graph_.closes[slowest_];
         run >= 0 && times_.end[run] > begin_; run = times_.cause[run]) {
      const StepTask& task = graph_.tasks[run % tasks_];
      const double whole = times_.end[run] - times_.begin[run];
      const double inside = times_.end[run] - std::max(times_.begin[run], begin_);
      if (inside <= 0) continue;
      prediction.critical.push_back({task.op, task.matrix, task.rank, task.lane,
                                     times_.begin[run] - begin_, inside, task.seconds});
      const double lost = std::max(0.0, whole - task.seconds) * (inside / whole);
      Lane taker = task.lane;
      if (task.transfer < 0) taker = task.lane == Lane::kCaller ? Lane::kCompute : Lane::kCaller;
      prediction.critical_seconds[static_cast<int>(task.lane)] += inside - lost;
      prediction.critical_seconds[static_cast<int>(taker)] += lost;
      if (task.transfer >= 0) prediction.critical_sharing += lost;
    }
  }

  const Plan& plan_;
  const StepGraph& graph_;
  const StepTimes& times_;
  const std::int32_t tasks_;
  double begin_ = 0, end_ = 0;
  std::size_t slowest_ = 0;
};

}  // namespace

absl::StatusOr<StepPrediction> EvaluatePlan(const Plan& plan, const CostModel& model,
                                            const TrainerModel& trainer,
                                            absl::Span<const std::optional<OwnedWork>> work) {
  WEFT_RETURN_IF_ERROR(Check(plan, model, trainer, work.size()));
  scheduler::Transfers transfers(plan, model);
  scheduler::OpSeconds seconds(plan, model, work);
  const StepGraph graph = scheduler::BuildStepGraph(plan, trainer, transfers, seconds);
  const StepTimes times = scheduler::RunSteps(graph, transfers, trainer.updates_first, kSteps);
  for (std::size_t run = 0; run < times.end.size(); ++run) {
    if (times.end[run] >= 0) continue;
    const StepTask& task = graph.tasks[run % graph.tasks.size()];
    return absl::FailedPreconditionError(
        absl::StrCat("the plan's ops wait for each other: ",
                     task.op < 0 ? "the trainer" : absl::StrCat("op ", task.op), " of rank ",
                     task.rank, " never begins."));
  }
  return Reading(plan, graph, times).Read();
}

std::string BoundText(const StepPrediction& prediction) {
  std::vector<std::pair<double, int>> parts;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    const double part = 100 * prediction.critical_seconds[lane] / prediction.step_seconds;
    if (part >= 1) parts.emplace_back(-part, lane);
  }
  if (parts.empty()) return "nothing";
  std::sort(parts.begin(), parts.end());
  return absl::StrJoin(parts, ", ", [](std::string* out, const auto& part) {
    const auto lane = static_cast<Lane>(part.second);
    absl::StrAppend(out, lane == Lane::kCaller ? "trainer" : std::string(Name(lane)), " ",
                    std::llround(-part.first), " %");
  });
}

}  // namespace weft
