// Derives what ops come after from what they read and write: for a plan, and for one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/plan.h"

namespace weft::scheduler {

// Every two ops of a rank of which one writes what the other touches become ordered, in the order
// in which Plan::ops has them and across two steps: by their lane, by the lists, or by a chain of
// both. Only edges that no chain implies are listed. Needs lanes in ascending order.
void DeriveDependencies(Plan& plan);

// As Op has them.
struct Predecessors {
  std::vector<std::int32_t> after;
  std::vector<std::int32_t> after_previous;
};

// By op: what this rank's own data needs. Ends of uses are ordered one behind another; their
// beginnings are not, and a use may be left out. So a use lists everything that it needs itself,
// and an op behind it counts on the use's end alone.
std::vector<Predecessors> PredecessorsOn(const Plan& plan, int rank);

}  // namespace weft::scheduler
