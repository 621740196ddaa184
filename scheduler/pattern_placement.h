// From a list of patterns to ranks.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/assignment_problem.h"
#include "scheduler/rank_loads.h"
#include "scheduler/run_costs.h"

namespace weft::scheduler {

// Gives each pattern (at most one per rank) to a rank so that the inter groups carry about equal
// bytes, takes away what is held too often and places what is left over where it adds least.
// Nothing if that breaks a cap.
std::optional<RankLoads> PlacePatterns(const AssignmentProblem& problem, const RunCosts& costs,
                                       std::vector<Holding> patterns);

// A new rank for each rank's holding, so that the inter groups carry about equal bytes: loads only
// change places. Every rank its own where that gains less than a twentieth of what the fullest
// group carries.
std::vector<int> BalanceGroups(const AssignmentProblem& problem, const RankLoads& loads);

}  // namespace weft::scheduler
