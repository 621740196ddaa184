// What a plan costs one rank, and where its buffers lie.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "weft/plan.h"

#pragma GCC visibility push(default)
namespace weft {

// One rank's buffers. Weights that a rank keeps (the trainer's memory; an owner's, where the layout
// is owned) are in none.
struct RankBuffers {
  std::vector<std::int64_t> bytes;  // by buffer; 0 where this rank does not need it
  // By lane: room for a part of its collectives in split form. The same on all ranks.
  std::array<std::int64_t, kLaneCount> scratch = {};
  // [matrix][slot]: where in its buffer the slot begins. Matrices of one set lie one behind the
  // other in the buffers that they share, in the set's order; others begin at 0 and take turns.
  std::vector<std::array<std::int64_t, kSlotCount>> offsets;
};
RankBuffers BuffersOfRank(const Plan& plan, int rank);

// What a plan costs one rank.
struct RankCost {
  double flops = 0;
  std::array<std::int64_t, kLaneCount> lane_bytes = {};  // payload of its collectives by lane
  std::int64_t state_bytes = 0;                          // optimizer state
  std::int64_t buffer_bytes = 0;                         // all buffers, scratch included
  int owned = 0;                                         // matrices it owns
};
RankCost CostOfRank(const Plan& plan, int rank);

}  // namespace weft
#pragma GCC visibility pop
