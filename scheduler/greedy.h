// Owners without a solver: longest processing time first, then moves and swaps.
#pragma once

#include <vector>

#include "scheduler/assignment_problem.h"
#include "scheduler/rank_loads.h"
#include "scheduler/run_costs.h"

namespace weft::scheduler {

struct LongestFirstResult {
  std::vector<int> owners;  // per matrix
  int unplaced = -1;        // the first matrix for which no rank had room; owners are void then
};

// The matrix that is dearest alone first, each to the rank whose load stays least (ties: fewer
// matrices, then spread order), among those with room. Where that finds no room for a matrix, the
// largest state first, then the most bytes first: heuristics, so caps that can be kept only just
// may still be refused.
LongestFirstResult LongestFirst(const AssignmentProblem& problem, const RunCosts& costs);

// Moves matrices away from the fullest rank, or swaps them for those of another, as long as that
// lowers the larger of the two loads; the best such step each time. Ends at `target`, where no step
// helps, or after a fixed number of comparisons. Keeps the caps. Deterministic.
void Improve(double target, RankLoads& loads);

}  // namespace weft::scheduler
