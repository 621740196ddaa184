// The search for the least makespan over patterns: for one target after another, is there a pattern
// for each rank so that nothing is left over?
#pragma once

#include <functional>
#include <vector>

#include "scheduler/assignment_problem.h"
#include "scheduler/rank_loads.h"
#include "scheduler/run_costs.h"

namespace weft::scheduler {

struct PatternSearchOptions {
  double gap = 0;                        // stop when the makespan is within it of the bound
  int most_nodes = 0;                    // of branch and bound, per target
  std::function<double()> seconds_left;  // empty: any time; never consulted for anything but an end
};

struct PatternSearchResult {
  RankLoads loads;  // never a larger makespan than it began with
  double lower_bound;
  int targets = 0;
  bool out_of_time = false;
};

// Begins from `loads` and the bound. A target is refuted, and becomes the bound, only by Lagrange
// duality with an exact pricing, or by branch and bound over all patterns. Requires
// PatternMaster::Available().
PatternSearchResult SearchPatterns(const AssignmentProblem& problem, const RunCosts& costs,
                                   const PatternSearchOptions& options, RankLoads loads,
                                   double lower_bound);

}  // namespace weft::scheduler
