#include "bench/plan_timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/check.h"
#include "collectives/local/links.h"

namespace weft::bench {
namespace {

constexpr int kTrainer = kLaneCount;
constexpr int kQueues = kLaneCount + 1;
// In which the device serves who shares it.
constexpr double kPieceSeconds = 0.5e-3;
constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

struct Task {
  const Op* op = nullptr;    // null: the trainer's
  const Op* with = nullptr;  // runs as one with it
  std::vector<int> ranks;
  int queue = 0;
  double seconds = 0;
  int step = 0;
  std::vector<int> after;
  bool done = false;
  Nanos end = 0;
  bool forward = false;  // the trainer's, in the first pass
};

collectives::OpKind WireKind(OpKind kind) {
  switch (kind) {
    case OpKind::kReduce:
      return collectives::OpKind::kReduce;
    case OpKind::kBroadcast:
      return collectives::OpKind::kBroadcast;
    case OpKind::kAllGather:
      return collectives::OpKind::kAllGather;
    case OpKind::kReduceScatter:
      return collectives::OpKind::kReduceScatter;
    case OpKind::kGather:
      return collectives::OpKind::kGather;
    case OpKind::kScatter:
      return collectives::OpKind::kScatter;
    default:
      return collectives::OpKind::kAllReduce;
  }
}

class Run {
 public:
  Run(const Plan& plan, const TimelineOptions& options)
      : plan_(plan),
        options_(options),
        world_(plan.topology.grid.size()),
        links_(options.topology),
        queues_(world_ * kQueues),
        heads_(world_ * kQueues, 0),
        device_free_(world_, 0) {}

  Timeline Go() {
    for (int step = 0; step < options_.steps; ++step) AddStep(step);
    while (RunNext()) {
    }
    Timeline timeline;
    timeline.forward_end.resize(options_.steps);
    timeline.backward_end.resize(options_.steps);
    timeline.verdict_end.resize(options_.steps);
    timeline.delivered.resize(options_.steps);
    for (const Task& task : tasks_) {
      WEFT_CHECK(task.done) << "a validated plan has no cycle";
      const double end = 1e-9 * static_cast<double>(task.end);
      const auto note = [&](std::vector<double>& by_step) {
        by_step[task.step] = std::max(by_step[task.step], end);
      };
      note(task.op == nullptr ? timeline.backward_end : timeline.delivered);
      if (task.forward) note(timeline.forward_end);
      if (task.op != nullptr && task.op->kind == OpKind::kVerdict) note(timeline.verdict_end);
    }
    return timeline;
  }

 private:
  // Tasks of one step: [rank][op], [rank][matrix] and [rank][use].
  struct StepTasks {
    std::vector<std::vector<int>> ops, backward, delivers, uses;
  };

  int Add(Task task) {
    const int id = static_cast<int>(tasks_.size());
    for (const int rank : task.ranks) queues_[rank * kQueues + task.queue].push_back(id);
    tasks_.push_back(std::move(task));
    return id;
  }

  // The last of them.
  int AddInPieces(Task task) {
    const int pieces = std::max(1, static_cast<int>(std::ceil(task.seconds / kPieceSeconds)));
    task.seconds /= pieces;
    for (int piece = 1; piece < pieces; ++piece) Add(task);
    return Add(std::move(task));
  }

  void AddStep(int step) {
    StepTasks now;
    const auto none = [&](std::size_t count) {
      return std::vector<std::vector<int>>(world_, std::vector<int>(count, -1));
    };
    now.ops = none(plan_.ops.size());
    now.backward = none(plan_.matrices.size());
    now.delivers = none(plan_.matrices.size());
    now.uses = none(plan_.uses.size());
    for (int rank = 0; rank < world_ && plan_.uses.empty(); ++rank) AddTrainer(step, rank, now);
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      if (plan_.ops[i].kind == OpKind::kUse) {
        AddUse(step, static_cast<std::int32_t>(i), now);
      } else {
        AddOp(step, static_cast<std::int32_t>(i), now);
      }
    }
    previous_ = std::move(now);
  }

  void AddTrainer(int step, int rank, StepTasks& now) {
    const int matrices = static_cast<int>(plan_.matrices.size());
    const auto layer = [&](double seconds) {
      Task task;
      task.ranks = {rank};
      task.queue = kTrainer;
      task.seconds = seconds;
      task.step = step;
      return task;
    };
    for (int m = 0; m < matrices; ++m) {
      Task task = layer(options_.forward_seconds);
      if (step > 0) task.after.push_back(previous_.delivers[rank][m]);
      AddInPieces(std::move(task));
    }
    for (int m = matrices - 1; m >= 0; --m) {
      now.backward[rank][m] = AddInPieces(layer(options_.backward_seconds));
    }
  }

  // The ops of a use stand one after another; together they are one task of each rank.
  void AddUse(int step, std::int32_t id, StepTasks& now) {
    const std::int32_t use = plan_.ops[id].use;
    if (now.uses[0][use] >= 0) return;
    const Use& what = plan_.uses[use];
    std::vector<std::int32_t> ops;
    for (auto i = static_cast<std::size_t>(id);
         i < plan_.ops.size() && plan_.ops[i].use == use && plan_.ops[i].kind == OpKind::kUse;
         ++i) {
      ops.push_back(static_cast<std::int32_t>(i));
    }
    for (int rank = 0; rank < world_; ++rank) {
      Task task;
      task.ranks = {rank};
      task.queue = static_cast<int>(Lane::kCaller);
      task.seconds = what.backward ? options_.backward_seconds : options_.forward_seconds;
      task.step = step;
      task.forward = !what.backward &&
                     use * 2 * plan_.limits.passes < static_cast<std::int32_t>(plan_.uses.size());
      for (const std::int32_t op : ops) {
        for (const std::int32_t before : plan_.ops[op].after) {
          if (now.ops[rank][before] >= 0) task.after.push_back(now.ops[rank][before]);
        }
        for (const std::int32_t before : plan_.ops[op].after_previous) {
          if (step > 0 && previous_.ops[rank][before] >= 0) {
            task.after.push_back(previous_.ops[rank][before]);
          }
        }
      }
      const int added = AddInPieces(std::move(task));
      now.uses[rank][use] = added;
      for (const std::int32_t op : ops) {
        now.ops[rank][op] = added;
        if (!what.backward) continue;
        for (const std::int32_t m : MatricesOf(plan_, plan_.ops[op])) now.backward[rank][m] = added;
      }
    }
  }

  void AddOp(int step, std::int32_t id, StepTasks& now) {
    const Op& op = plan_.ops[id];
    if (id > 0 && plan_.ops[id - 1].with_next) return;
    for (const std::vector<int>& part : plan_.groups[op.group].parts) {
      if (IsCollective(op.kind) && part.size() > 1) {
        AddOn(step, id, part, now);
      } else {
        for (const int rank : part) AddOn(step, id, {rank}, now);
      }
    }
  }

  void AddOn(int step, std::int32_t id, const std::vector<int>& ranks, StepTasks& now) {
    const Op& op = plan_.ops[id];
    Task task;
    task.op = &op;
    task.ranks = ranks;
    task.queue = static_cast<int>(op.lane);
    task.step = step;
    if (!IsCollective(op.kind) && options_.compute_seconds) {
      task.seconds = options_.compute_seconds(op);
    }
    if (op.with_next) task.with = &plan_.ops[id + 1];
    const auto wait = [&](int before) {
      if (before >= 0) task.after.push_back(before);
    };
    const auto wait_for = [&](const Op& each, int rank) {
      for (const std::int32_t before : each.after) wait(now.ops[rank][before]);
      if (step > 0) {
        for (const std::int32_t before : each.after_previous) wait(previous_.ops[rank][before]);
      }
      if (each.trigger == Trigger::kSubmitted) {
        for (const std::int32_t m : MatricesOf(plan_, each)) wait(now.backward[rank][m]);
      }
      if (each.trigger == Trigger::kNeeded) {
        if (options_.host_waits && each.use > 0) wait(now.uses[rank][each.use - 1]);
      } else if (each.target == Slot::kWeight) {
        // Weights stay as they are until the trainer has read them.
        wait(now.backward[rank][0]);
      }
    };
    for (const int rank : ranks) {
      wait_for(op, rank);
      if (task.with != nullptr) wait_for(*task.with, rank);
    }
    const std::int32_t last_id = task.with != nullptr ? id + 1 : id;
    const int added = AddInPieces(std::move(task));
    for (const int rank : ranks) {
      for (std::int32_t each = id; each <= last_id; ++each) {
        now.ops[rank][each] = added;
        for (const std::int32_t m : MatricesOf(plan_, plan_.ops[each])) {
          int& last = now.delivers[rank][m];
          if (last < 0 || tasks_[last].op->stage <= plan_.ops[each].stage) last = added;
        }
      }
    }
  }

  // Runs the task that begins first of those that can; false where none is left.
  bool RunNext() {
    int next = -1;
    // Begin, what goes before what begins with it, arrival, and place in the plan.
    std::array<Nanos, 4> soonest = {kNever, 0, 0, 0};
    for (std::size_t q = 0; q < queues_.size(); ++q) {
      if (heads_[q] == queues_[q].size()) continue;
      const int id = queues_[q][heads_[q]];
      const Task& task = tasks_[id];
      const Nanos arrival = Arrival(task);
      if (arrival == kNever) continue;
      const Nanos begin =
          task.seconds > 0 ? std::max(arrival, device_free_[task.ranks[0]]) : arrival;
      const bool yields = options_.updates_first && task.queue == kTrainer;
      const std::array<Nanos, 4> key = {begin, yields ? 1 : 0, arrival, id};
      if (key >= soonest) continue;
      soonest = key;
      next = id;
    }
    if (next < 0) return false;
    Task& task = tasks_[next];
    if (task.op != nullptr && IsCollective(task.op->kind) && task.ranks.size() > 1) {
      task.end = links_.Book(WireOf(task), task.ranks, soonest[0]);
    } else {
      task.end = soonest[0];
      if (task.seconds > 0) {
        task.end += static_cast<Nanos>(std::llround(1e9 * task.seconds));
        device_free_[task.ranks[0]] = task.end;
      }
    }
    task.done = true;
    for (const int rank : task.ranks) ++heads_[rank * kQueues + task.queue];
    return true;
  }

  // When the last of what it waits for is over; never, where that has not run.
  Nanos Arrival(const Task& task) const {
    Nanos arrival = 0;
    const int id = static_cast<int>(&task - tasks_.data());
    for (const int rank : task.ranks) {
      const int q = rank * kQueues + task.queue;
      if (queues_[q][heads_[q]] != id) return kNever;
      if (heads_[q] > 0) arrival = std::max(arrival, tasks_[queues_[q][heads_[q] - 1]].end);
    }
    for (const int before : task.after) {
      if (!tasks_[before].done) return kNever;
      arrival = std::max(arrival, tasks_[before].end);
    }
    return arrival;
  }

  collectives::Operation WireOf(const Task& task) const {
    collectives::Operation wire = WireOf(*task.op, task.ranks[0]);
    if (task.with != nullptr) wire.joined.push_back(WireOf(*task.with, task.ranks[0]));
    return wire;
  }

  collectives::Operation WireOf(const Op& op, int rank) const {
    collectives::Operation wire;
    wire.kind = WireKind(op.kind);
    wire.root = std::max(op.root, 0);
    const std::int64_t bytes = PayloadBytes(plan_, op, rank);
    wire.dtype = DType::kBF16;  // the smallest unit of what Weft reduces
    wire.counts = {collectives::IsReduction(wire.kind) ? bytes / 2 : bytes};
    return wire;
  }

  const Plan& plan_;
  const TimelineOptions& options_;
  const int world_;
  collectives::local::Links links_;
  std::vector<Task> tasks_;
  std::vector<std::vector<int>> queues_;  // rank by rank: its lanes, then its trainer
  std::vector<std::size_t> heads_;
  std::vector<Nanos> device_free_;
  StepTasks previous_;
};

}  // namespace

Timeline TimelineOf(const Plan& plan, const TimelineOptions& options) {
  return Run(plan, options).Go();
}

}  // namespace weft::bench
