#include "scheduler/dependencies.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "scheduler/access.h"

namespace weft::scheduler {
namespace {

// How far each lane of a rank is known to have come before an op runs. Positions count from 1 and
// go on through the second step.
using Frontier = std::array<std::int32_t, kLaneCount>;

void Merge(Frontier& into, const Frontier& from) {
  for (int lane = 0; lane < kLaneCount; ++lane) into[lane] = std::max(into[lane], from[lane]);
}

// An op of one of two steps, in the order in which they happen.
struct StepOp {
  std::int32_t step = -1;
  std::int32_t op = -1;
  friend auto operator<=>(const StepOp&, const StepOp&) = default;
};

struct LastAccess {
  StepOp writer;
  std::array<StepOp, kLaneCount> readers;  // since then
  int rank = -1;
};

class Deriver {
 public:
  explicit Deriver(Plan& plan)
      : plan_(plan),
        last_(ResourceArraySize(plan.matrices.size())),
        rank_of_(plan.ops.size(), -1),
        frontier_{std::vector<Frontier>(plan.ops.size()), std::vector<Frontier>(plan.ops.size())} {}

  void Run() {
    for (int rank = 0; rank < plan_.topology.grid.size(); ++rank) RunRank(rank);
    for (Op& op : plan_.ops) {
      std::sort(op.after.begin(), op.after.end());
      std::sort(op.after_previous.begin(), op.after_previous.end());
    }
  }

 private:
  void RunRank(int rank) {
    rank_ = rank;
    lane_frontier_ = {};
    const auto& lanes = plan_.lanes[rank];
    for (int step = 0; step < 2; ++step) {
      std::array<std::size_t, kLaneCount> next = {};
      while (true) {
        int lowest = -1;
        for (int lane = 0; lane < kLaneCount; ++lane) {
          if (next[lane] == lanes[lane].size()) continue;
          if (lowest < 0 || lanes[lane][next[lane]] < lanes[lowest][next[lowest]]) lowest = lane;
        }
        if (lowest < 0) break;
        Visit(step, lanes[lowest][next[lowest]++]);
      }
    }
  }

  void Visit(int step, std::int32_t index) {
    Op& op = plan_.ops[index];
    rank_of_[index] = rank_;
    const int lane = static_cast<int>(op.lane);
    Frontier now = lane_frontier_[lane];
    // What other ranks needed holds here too.
    for (std::int32_t before : op.after) {
      if (rank_of_[before] == rank_) Merge(now, frontier_[step][before]);
    }
    if (step == 1) {
      for (std::int32_t before : op.after_previous) {
        if (rank_of_[before] == rank_) Merge(now, frontier_[0][before]);
      }
    }
    const Accesses accesses = AccessesOf(op, rank_);
    candidates_.clear();
    for (const Access& access : accesses) {
      const LastAccess& last = Last(op.matrix, access.resource);
      AddCandidate(last.writer);
      if (access.writes) {
        for (const StepOp& reader : last.readers) AddCandidate(reader);
      }
    }
    // Latest first: its chain may imply the earlier ones.
    std::sort(candidates_.begin(), candidates_.end(), std::greater<>());
    for (const StepOp& before : candidates_) {
      const Frontier& its = frontier_[before.step][before.op];
      const int its_lane = static_cast<int>(plan_.ops[before.op].lane);
      if (now[its_lane] >= its[its_lane]) continue;
      Merge(now, its);
      (before.step == step ? op.after : op.after_previous).push_back(before.op);
    }
    ++now[lane];
    frontier_[step][index] = now;
    lane_frontier_[lane] = now;
    for (const Access& access : accesses) {
      LastAccess& last = Last(op.matrix, access.resource);
      if (access.writes) {
        last.writer = {step, index};
        last.readers = {};
      } else {
        last.readers[lane] = {step, index};
      }
    }
  }

  void AddCandidate(const StepOp& before) {
    if (before.op >= 0) candidates_.push_back(before);
  }

  LastAccess& Last(std::int32_t matrix, Resource resource) {
    LastAccess& last = last_[ResourceIndex(matrix, resource)];
    if (last.rank != rank_) {
      last = {};
      last.rank = rank_;
    }
    return last;
  }

  Plan& plan_;
  std::vector<LastAccess> last_;
  std::vector<int> rank_of_;  // the last rank that visited an op
  std::array<std::vector<Frontier>, 2> frontier_;
  std::array<Frontier, kLaneCount> lane_frontier_ = {};
  std::vector<StepOp> candidates_;
  int rank_ = -1;
};

}  // namespace

void DeriveDependencies(Plan& plan) { Deriver(plan).Run(); }

}  // namespace weft::scheduler
