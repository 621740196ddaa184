#include "scheduler/dependencies.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/access.h"
#include "scheduler/groups.h"
#include "scheduler/turns.h"

namespace weft::scheduler {
namespace {

// How far each lane of a rank is known to have come before an op runs. Positions count from 1 and
// go on through the second step.
using Frontier = std::array<std::int32_t, kLaneCount>;

void Merge(Frontier& into, const Frontier& from) {
  for (int lane = 0; lane < kLaneCount; ++lane) into[lane] = std::max(into[lane], from[lane]);
}

struct LastAccess {
  StepOp writer;
  LastByLane readers;  // since then
  int rank = -1;
  std::int32_t turn = 0;  // of the writer
};

class Deriver {
 public:
  explicit Deriver(Plan& plan)
      : plan_(plan),
        groups_(plan),
        turns_(plan),
        last_(ResourceArraySize(plan.matrices.size())),
        rank_of_(plan.ops.size(), -1),
        frontier_{std::vector<Frontier>(plan.ops.size()), std::vector<Frontier>(plan.ops.size())} {}

  void Run() {
    for (std::size_t rank = 0; rank < plan_.lanes.size(); ++rank) RunRank(static_cast<int>(rank));
    for (Op& op : plan_.ops) {
      std::sort(op.after.begin(), op.after.end());
      std::sort(op.after_previous.begin(), op.after_previous.end());
    }
  }

 private:
  void RunRank(int rank) {
    rank_ = rank;
    turns_.BeginRank(rank);
    lane_frontier_ = {};
    OpsOfRank(plan_, rank, order_);
    for (std::int32_t index : order_) rank_of_[index] = rank;
    for (int step = 0; step < 2; ++step) {
      for (std::int32_t index : order_) Visit({step, index});
    }
  }

  void Visit(const StepOp& self) {
    Op& op = plan_.ops[self.op];
    const int lane = static_cast<int>(op.lane);
    Frontier now = lane_frontier_[lane];
    // What other ranks needed holds here too.
    for (std::int32_t before : op.after) {
      if (rank_of_[before] == rank_) Merge(now, frontier_[self.step][before]);
    }
    if (self.step == 1) {
      for (std::int32_t before : op.after_previous) {
        if (rank_of_[before] == rank_) Merge(now, frontier_[0][before]);
      }
    }
    const bool root = groups_.IsRoot(op, rank_);
    candidates_.clear();
    ForEachAccess(plan_, op, root, [&](const Access& access) {
      const LastAccess& last = Last(access);
      const Turns::Answer answer = turns_.Enter(access);
      AddCandidate(now, last.writer);
      if (!access.writes) return;
      for (const StepOp& reader : last.readers) AddCandidate(now, reader);
      if (answer.before != nullptr && last.turn != answer.turn) {
        for (const StepOp& before : *answer.before) AddCandidate(now, before);
      }
    });
    // Latest first: its chain may imply the earlier ones.
    std::sort(candidates_.begin(), candidates_.end(), std::greater<>());
    for (const StepOp& before : candidates_) {
      if (Known(now, before)) continue;
      Merge(now, frontier_[before.step][before.op]);
      (before.step == self.step ? op.after : op.after_previous).push_back(before.op);
    }
    ++now[lane];
    frontier_[self.step][self.op] = now;
    lane_frontier_[lane] = now;
    ForEachAccess(plan_, op, root, [&](const Access& access) {
      LastAccess& last = Last(access);
      turns_.Leave(access, self, op.lane);
      if (access.writes) {
        last.writer = self;
        last.readers = {};
        last.turn = turns_.turn(access);
      } else {
        last.readers[lane] = self;
      }
    });
  }

  bool Known(const Frontier& now, const StepOp& before) const {
    const int lane = static_cast<int>(plan_.ops[before.op].lane);
    return now[lane] >= frontier_[before.step][before.op][lane];
  }

  void AddCandidate(const Frontier& now, const StepOp& before) {
    if (before.op >= 0 && !Known(now, before)) candidates_.push_back(before);
  }

  LastAccess& Last(const Access& access) {
    LastAccess& last = last_[ResourceIndex(access)];
    if (last.rank != rank_) {
      last = {};
      last.rank = rank_;
    }
    return last;
  }

  Plan& plan_;
  const GroupIndex groups_;
  Turns turns_;
  std::vector<LastAccess> last_;
  std::vector<int> rank_of_;  // the last rank that visited an op
  std::array<std::vector<Frontier>, 2> frontier_;
  std::array<Frontier, kLaneCount> lane_frontier_ = {};
  std::vector<StepOp> candidates_;
  std::vector<std::int32_t> order_;
  int rank_ = -1;
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
  Deriver(plan).Run();
  Pruner(plan).Run();
}

}  // namespace weft::scheduler
