#include "scheduler/step_graph.h"

#include <algorithm>
#include <array>

#include "scheduler/dependencies.h"
#include "scheduler/groups.h"
#include "scheduler/trainer_items.h"

namespace weft::scheduler {

Successors::Successors(std::vector<Edge> edges, std::size_t tasks)
    : begin_(tasks + 1, 0), waits_(tasks, 0) {
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  to_.reserve(edges.size());
  for (const auto& [from, to] : edges) {
    ++begin_[from + 1];
    ++waits_[to];
    to_.push_back(to);
  }
  for (std::size_t i = 0; i < tasks; ++i) begin_[i + 1] += begin_[i];
}

namespace {

class Builder {
 public:
  Builder(const Plan& plan, const TrainerModel& trainer, Transfers& transfers, OpSeconds& seconds)
      : plan_(plan),
        trainer_(trainer),
        transfers_(transfers),
        seconds_(seconds),
        groups_(plan),
        first_of_(plan.ops.size(), -1),
        here_(plan.ops.size(), -1) {
    const auto works = [](const std::vector<double>& list) {
      return std::any_of(list.begin(), list.end(), [](double each) { return each > 0; });
    };
    // Without a trainer all ranks have all gradients when all of them have all weights.
    if (!plan.uses.empty() || works(trainer.forward_seconds) || works(trainer.backward_seconds)) {
      items_ = TrainerItems(plan);
    }
  }

  StepGraph Build() {
    AddCollectives();
    const int ranks = plan_.topology.grid.size();
    graph_.lanes.resize(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      AddOpsOf(rank);
      AddTrainerOf(rank);
      AddEdgesOf(rank);
    }
    graph_.same_step = Successors(std::move(same_), graph_.tasks.size());
    graph_.next_step = Successors(std::move(previous_), graph_.tasks.size());
    return std::move(graph_);
  }

 private:
  bool Meets(const Op& op) const {
    return Works(op) && IsCollective(op.kind) && plan_.groups[op.group].parts[0].size() > 1;
  }
  bool Works(const Op& op) const { return RunsIn(plan_, op, trainer_.step); }
  bool RunsWithPrevious(std::int32_t op) const { return op > 0 && plan_.ops[op - 1].with_next; }

  std::int32_t Add(StepTask task) {
    graph_.tasks.push_back(task);
    return static_cast<std::int32_t>(graph_.tasks.size()) - 1;
  }

  void AddCollectives() {
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      const Op& op = plan_.ops[i];
      if (!Meets(op) || RunsWithPrevious(id)) continue;
      first_of_[i] = static_cast<std::int32_t>(graph_.tasks.size());
      const auto& parts = plan_.groups[op.group].parts;
      for (std::size_t part = 0; part < parts.size(); ++part) {
        const std::int32_t transfer = transfers_.Of(id, static_cast<int>(part));
        Add({id, op.matrix, parts[part][0], transfer, op.lane, transfers_.all()[transfer].seconds});
      }
    }
  }

  double SecondsOf(std::int32_t id, int rank) {
    const Op& op = plan_.ops[id];
    if (!Works(op)) return 0;
    return op.kind == OpKind::kUse ? UseSeconds(op) : seconds_.Of(id, rank);
  }

  // In the order of the plan, which is that of each lane.
  void AddOpsOf(int rank) {
    order_.clear();
    for (const auto& lane : plan_.lanes[rank])
      order_.insert(order_.end(), lane.begin(), lane.end());
    std::sort(order_.begin(), order_.end());
    for (const std::int32_t id : order_) {
      const Op& op = plan_.ops[id];
      if (RunsWithPrevious(id)) {
        here_[id] = here_[id - 1];
        continue;
      }
      if (Meets(op)) {
        here_[id] = first_of_[id] + groups_.PartOf(op.group, rank);
      } else {
        here_[id] = Add({id, op.matrix, rank, -1, op.lane, SecondsOf(id, rank)});
      }
      if (op.kind != OpKind::kUse) LaneOf(rank, op.lane).push_back(here_[id]);
    }
  }

  double TrainerSeconds(std::int32_t matrix, bool backward) const {
    const std::vector<double>& list =
        backward ? trainer_.backward_seconds : trainer_.forward_seconds;
    return list.empty() ? 0 : list[matrix];
  }
  double UseSeconds(const Op& op) const {
    double sum = 0;
    for (const std::int32_t m : MatricesOf(plan_, op)) {
      sum += TrainerSeconds(m, plan_.uses[op.use].backward);
    }
    return sum;
  }

  std::vector<std::int32_t>& LaneOf(int rank, Lane lane) {
    return graph_.lanes[rank][static_cast<int>(lane)];
  }

  void AddTrainerOf(int rank) {
    std::vector<std::int32_t>& queue = LaneOf(rank, Lane::kCaller);
    gradients_.assign(plan_.limits.passes, std::vector<std::int32_t>(plan_.matrices.size(), -1));
    forward_.assign(plan_.matrices.size(), -1);
    first_of_use_.assign(plan_.uses.size(), -1);
    last_of_use_.assign(plan_.uses.size(), -1);
    for (const TrainerItem& item : items_) {
      if (item.op < 0) {
        queue.push_back(Add({-1, item.matrix, rank, -1, Lane::kCaller,
                             TrainerSeconds(item.matrix, item.backward)}));
        if (item.backward) {
          gradients_[item.pass][item.matrix] = queue.back();
        } else if (item.pass == 0) {
          forward_[item.matrix] = queue.back();
        }
        continue;
      }
      queue.push_back(here_[item.op]);
      const std::int32_t use = plan_.ops[item.op].use;
      if (first_of_use_[use] < 0) first_of_use_[use] = queue.back();
      last_of_use_[use] = queue.back();
      if (!item.backward) continue;
      for (const std::int32_t m : MatricesOf(plan_, plan_.ops[item.op])) {
        gradients_[item.pass][m] = queue.back();
      }
    }
    const bool together = items_.empty() && rank > 0;
    queue.push_back(together ? graph_.closes[0] : Add({-1, -1, rank, -1, Lane::kCaller, 0}));
    graph_.closes.push_back(queue.back());
  }

  void Wait(std::int32_t task, std::int32_t before) {
    if (task != before) same_.emplace_back(before, task);
  }

  // A layer is released as a whole.
  std::int32_t EndOf(std::int32_t op) const {
    return plan_.ops[op].kind == OpKind::kUse ? last_of_use_[plan_.ops[op].use] : here_[op];
  }

  void AddEdgesOf(int rank) {
    for (const auto& lane : graph_.lanes[rank]) {
      if (lane.empty()) continue;
      for (std::size_t i = 1; i < lane.size(); ++i) Wait(lane[i], lane[i - 1]);
      previous_.emplace_back(lane.back(), lane.front());
    }
    const std::vector<Predecessors> predecessors = PredecessorsOn(plan_, rank);
    const std::int32_t close = graph_.closes[rank];
    last_of_.fill(std::vector<std::int32_t>(plan_.matrices.size(), -1));
    closed_.fill(false);
    for (const std::int32_t id : order_) {
      const Op& op = plan_.ops[id];
      // A layer is used when all of it is there.
      const std::int32_t task = op.kind == OpKind::kUse ? first_of_use_[op.use] : here_[id];
      for (const std::int32_t before : predecessors[id].after) Wait(task, EndOf(before));
      for (const std::int32_t before : predecessors[id].after_previous) {
        previous_.emplace_back(EndOf(before), task);
      }
      AddTrigger(op, task, close);
      if (op.trigger == Trigger::kNeeded) continue;
      for (const std::int32_t m : MatricesOf(plan_, op)) {
        last_of_[static_cast<int>(op.lane)][m] = task;
      }
    }
    for (int lane = 0; lane < kLaneCount; ++lane) {
      if (items_.empty()) {
        const auto& ops = graph_.lanes[rank][lane];
        if (!ops.empty() && ops.back() != close) previous_.emplace_back(ops.back(), close);
        continue;
      }
      // Delivered, a matrix is when all its ops are over.
      for (std::size_t m = 0; m < plan_.matrices.size(); ++m) {
        const std::int32_t last = last_of_[lane][m];
        if (last >= 0 && forward_[m] >= 0) previous_.emplace_back(last, forward_[m]);
      }
    }
  }

  void AddTrigger(const Op& op, std::int32_t task, std::int32_t close) {
    switch (op.trigger) {
      case Trigger::kSubmitted: {
        const int pass = plan_.limits.reduce_each_pass ? op.pass : plan_.limits.passes - 1;
        for (const std::int32_t m : MatricesOf(plan_, op)) {
          Wait(task, items_.empty() ? close : gradients_[pass][m]);
        }
        break;
      }
      case Trigger::kStepClosed:
        // Those behind the first on a lane come after it.
        if (!closed_[static_cast<int>(op.lane)]) Wait(task, close);
        closed_[static_cast<int>(op.lane)] = true;
        break;
      case Trigger::kNeeded:
        if (!trainer_.host_waits || op.kind == OpKind::kUse) break;
        if (op.use > 0) {
          Wait(task, last_of_use_[op.use - 1]);
        } else {
          previous_.emplace_back(close, task);
        }
        break;
    }
  }

  const Plan& plan_;
  const TrainerModel& trainer_;
  Transfers& transfers_;
  OpSeconds& seconds_;
  const GroupIndex groups_;
  std::vector<TrainerItem> items_;
  StepGraph graph_;
  std::vector<Successors::Edge> same_, previous_;
  std::vector<std::int32_t> first_of_;  // by op: its first part's task
  // Of the rank that is added:
  std::vector<std::int32_t> order_;                   // ops
  std::vector<std::int32_t> here_;                    // by op: its task
  std::vector<std::vector<std::int32_t>> gradients_;  // by pass and matrix
  std::vector<std::int32_t> forward_;                 // by matrix, of the first pass
  std::vector<std::int32_t> first_of_use_, last_of_use_;
  std::array<std::vector<std::int32_t>, kLaneCount> last_of_;  // by lane and matrix
  std::array<bool, kLaneCount> closed_ = {};  // by lane: something there waits for the closing
};

}  // namespace

StepGraph BuildStepGraph(const Plan& plan, const TrainerModel& trainer, Transfers& transfers,
                         OpSeconds& seconds) {
  return Builder(plan, trainer, transfers, seconds).Build();
}

}  // namespace weft::scheduler
