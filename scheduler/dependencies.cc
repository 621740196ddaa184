#include "scheduler/dependencies.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "scheduler/access.h"
#include "scheduler/rank_ops.h"
#include "scheduler/turns.h"

namespace weft::scheduler {
namespace {

struct LastAccess {
  int rank = -1;
  std::int32_t turn = 0;  // of the writer
  int writer_lane = 0;
  std::int32_t writer = 0;  // its place on its lane
  Frontier readers = {};    // since then
};

class Deriver {
 public:
  // Of all ranks, as plans have them, or of one, as PredecessorsOn() does.
  enum class Scope { kPlan, kRank };

  Deriver(const Plan& plan, Scope scope)
      : plan_(plan),
        scope_(scope),
        found_(plan.ops.size()),
        ops_(plan),
        turns_(plan.buffers),
        last_(ResourceArraySize(plan.matrices.size())),
        frontier_{std::vector<Frontier>(plan.ops.size()), std::vector<Frontier>(plan.ops.size())} {}

  // Adds what `rank` needs beside what ranks before it have needed.
  void RunRank(int rank) {
    ops_.Begin(rank);
    turns_.BeginRank(rank);
    lane_frontier_ = {};
    for (int step = 0; step < 2; ++step) {
      for (const RankOps::Item& item : ops_.items()) Visit(step, item);
    }
  }

  // Of all ranks so far, by op.
  std::vector<Predecessors> Take() {
    for (Predecessors& found : found_) {
      std::sort(found.after.begin(), found.after.end());
      std::sort(found.after_previous.begin(), found.after_previous.end());
    }
    return std::move(found_);
  }

 private:
  void Visit(int step, const RankOps::Item& item) {
    Predecessors& found = found_[item.op];
    const int lane = static_cast<int>(item.lane);
    const bool apart = scope_ == Scope::kRank && item.lane == Lane::kCaller;
    Frontier now = apart ? Frontier{} : lane_frontier_[lane];
    // What other ranks needed holds here too.
    for (std::int32_t before : found.after) {
      if (ops_.Has(before)) Merge(now, frontier_[step][before]);
    }
    if (step == 1) {
      for (std::int32_t before : found.after_previous) {
        if (ops_.Has(before)) Merge(now, frontier_[0][before]);
      }
    }
    candidates_.clear();
    for (const Touch& touch : item.touches) {
      if (Empty(touch)) continue;
      const LastAccess& last = Last(touch);
      const Turns::Answer answer = turns_.Enter(touch);
      AddCandidate(now, last.writer_lane, last.writer);
      if (!touch.writes) continue;
      AddCandidates(now, last.readers);
      if (answer.before != nullptr && last.turn != answer.turn) AddCandidates(now, *answer.before);
    }
    // Latest first: its chain may imply the earlier ones.
    std::sort(candidates_.begin(), candidates_.end(), std::greater<>());
    for (const StepOp& before : candidates_) {
      if (Known(now, before)) continue;
      Merge(now, frontier_[before.step][before.op]);
      (before.step == step ? found.after : found.after_previous).push_back(before.op);
    }
    const std::int32_t place = lane_frontier_[lane][lane] + 1;
    if (apart) now = {};
    now[lane] = place;
    frontier_[step][item.op] = now;
    lane_frontier_[lane] = now;
    for (const Touch& touch : item.touches) {
      if (Empty(touch)) continue;
      LastAccess& last = Last(touch);
      const std::int32_t turn = turns_.Leave(touch, lane, place);
      if (touch.writes) {
        last.writer_lane = lane;
        last.writer = place;
        last.readers = {};
        last.turn = turn;
      } else {
        last.readers[lane] = place;
      }
    }
  }

  // Whether the rank has no part of it, so that there is nothing to wait for.
  bool Empty(const Touch& touch) const {
    if (scope_ == Scope::kPlan) return false;
    const Access access = AccessAt(static_cast<std::size_t>(touch.place));
    return access.matrix >= 0 && access.resource < kSlotCount &&
           SlotRows(plan_, access.matrix, static_cast<Slot>(access.resource), ops_.rank()) == 0;
  }

  bool Known(const Frontier& now, const StepOp& before) const {
    const int lane = static_cast<int>(plan_.ops[before.op].lane);
    return now[lane] >= frontier_[before.step][before.op][lane];
  }

  void AddCandidate(const Frontier& now, int lane, std::int32_t place) {
    if (now[lane] < place) candidates_.push_back(ops_.At(lane, place));
  }
  void AddCandidates(const Frontier& now, const Frontier& places) {
    for (int lane = 0; lane < kLaneCount; ++lane) AddCandidate(now, lane, places[lane]);
  }

  LastAccess& Last(const Touch& touch) {
    LastAccess& last = last_[touch.place];
    if (last.rank != ops_.rank()) {
      last = {};
      last.rank = ops_.rank();
    }
    return last;
  }

  const Plan& plan_;
  const Scope scope_;
  std::vector<Predecessors> found_;
  RankOps ops_;
  Turns turns_;
  std::vector<LastAccess> last_;
  std::array<std::vector<Frontier>, 2> frontier_;  // by step and op
  std::array<Frontier, kLaneCount> lane_frontier_ = {};
  std::vector<StepOp> candidates_;
};

// The walk goes rank by rank, so that an edge which one rank needed may turn out to be implied by
// one that a later rank needs, as that from the owner's apply to a broadcast inside nodes is by the
// broadcast between nodes.
class Pruner {
 public:
  explicit Pruner(Plan& plan) : plan_(plan) {}

  void Run() {
    for (Op& op : plan_.ops) {
      Prune(op, op.after, &Op::after);
      Prune(op, op.after_previous, &Op::after_previous);
    }
  }

 private:
  void Prune(const Op& op, std::vector<std::int32_t>& edges,
             std::vector<std::int32_t> Op::*list) const {
    for (std::size_t i = 0; i < edges.size();) {
      const bool implied =
          ImpliedThrough(op, edges[i], op.after, list) ||
          (list == &Op::after_previous && ImpliedThrough(op, edges[i], edges, &Op::after));
      if (implied) {
        edges.erase(edges.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }

  // Some op of `through` comes after `edge`, by its `list`, wherever `op` has to.
  bool ImpliedThrough(const Op& op, std::int32_t edge, const std::vector<std::int32_t>& through,
                      std::vector<std::int32_t> Op::*list) const {
    const Op& first = plan_.ops[edge];
    for (std::int32_t middle : through) {
      const Op& its = plan_.ops[middle];
      if (middle == edge || !Covers(op, first, its)) continue;
      for (std::int32_t before : its.*list) {
        const Op& known = plan_.ops[before];
        if (before == edge ||
            (before > edge && known.lane == first.lane && Covers(op, first, known))) {
          return true;
        }
      }
    }
    return false;
  }

  // `its` runs on every rank that runs both `op` and `first`.
  bool Covers(const Op& op, const Op& first, const Op& its) const {
    const auto everybody = [&](const Op& one) {
      std::size_t members = 0;
      for (const auto& part : plan_.groups[one.group].parts) members += part.size();
      return members == plan_.lanes.size();
    };
    if (its.group == op.group || its.group == first.group || everybody(its)) return true;
    const Op& narrow = everybody(first) ? op : first;
    for (const auto& part : plan_.groups[narrow.group].parts) {
      for (int rank : part) {
        const bool both =
            plan_.groups[op.group].PartOf(rank) >= 0 && plan_.groups[first.group].PartOf(rank) >= 0;
        if (both && plan_.groups[its.group].PartOf(rank) < 0) return false;
      }
    }
    return true;
  }

  Plan& plan_;
};

}  // namespace

void DeriveDependencies(Plan& plan) {
  Deriver deriver(plan, Deriver::Scope::kPlan);
  for (std::size_t rank = 0; rank < plan.lanes.size(); ++rank) {
    deriver.RunRank(static_cast<int>(rank));
  }
  std::vector<Predecessors> found = deriver.Take();
  for (std::size_t i = 0; i < found.size(); ++i) {
    plan.ops[i].after = std::move(found[i].after);
    plan.ops[i].after_previous = std::move(found[i].after_previous);
  }
  Pruner(plan).Run();
}

std::vector<Predecessors> PredecessorsOn(const Plan& plan, int rank) {
  Deriver deriver(plan, Deriver::Scope::kRank);
  deriver.RunRank(rank);
  return deriver.Take();
}

}  // namespace weft::scheduler
