// The ops of one rank after another, in the order of the plan, with what each touches there. What
// all ranks have in common is taken from the plan once, not once per rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/access.h"
#include "scheduler/groups.h"
#include "weft/plan.h"

namespace weft::scheduler {

// An op of one of two steps, in the order in which they happen.
struct StepOp {
  std::int32_t step = -1;
  std::int32_t op = -1;
  friend auto operator<=>(const StepOp&, const StepOp&) = default;
};

// By lane of a rank, how far it has come: the place of an op on its lane, from 1 on and through the
// second step; 0 for none. Those before it on the lane are implied.
using Frontier = std::array<std::int32_t, kLaneCount>;

inline void Merge(Frontier& into, const Frontier& from) {
  for (int lane = 0; lane < kLaneCount; ++lane) into[lane] = std::max(into[lane], from[lane]);
}

// An Access as every rank finds it.
struct Touch {
  std::int32_t place = 0;     // ResourceIndex()
  std::int32_t buffer = -1;   // the slot's, where others have it in turn
  std::int32_t occupant = 0;  // OccupantOf() that buffer while the slot is in use
  std::int32_t keeper = -1;   // the rank that has the slot in memory of its own instead
  bool reads = false;
  bool writes = false;
};

class RankOps {
 public:
  explicit RankOps(const Plan& plan);

  struct Item {
    std::int32_t op;
    Lane lane;
    absl::Span<const Touch> touches;
  };
  // Goes on to a rank, whose lanes are ascending.
  void Begin(int rank);
  int rank() const { return rank_; }
  const std::vector<Item>& items() const { return items_; }
  bool Has(std::int32_t op) const { return last_rank_[op] == rank_; }
  // The op at a place, which is not 0, of one of the rank's lanes.
  StepOp At(int lane, std::int32_t place) const;

 private:
  struct Lists {
    Lane lane;
    // In touches_: of the root, and from `others` on of the other ranks.
    std::uint32_t begin;
    std::uint32_t others;
    std::uint32_t end;
    // Of an exchange's op, which touches other things on each rank: its place in exchanges_.
    std::int32_t exchange = -1;
  };

  Touch TouchOf(const Access& access) const;

  const Plan& plan_;
  const GroupIndex groups_;
  const std::vector<bool> shared_;  // by buffer
  std::vector<Touch> touches_;
  std::vector<std::vector<Touch>> exchanges_;  // of the rank
  std::vector<Lists> lists_;                   // by op
  std::vector<int> last_rank_;                 // by op, the last rank found to have it
  std::vector<std::int32_t> order_;
  std::vector<Item> items_;
  int rank_ = -1;
};

}  // namespace weft::scheduler
