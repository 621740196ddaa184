// The search for holdings of small makespan: LPT, then local search, then the program, each only
// where the one before leaves something to gain.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/assignment_problem.h"
#include "scheduler/owner_assignment.h"
#include "scheduler/pattern_search.h"
#include "scheduler/rank_loads.h"
#include "scheduler/run_costs.h"

namespace weft::scheduler {

struct FoundLoads {
  RankLoads loads;
  std::vector<int> owners;  // LPT's own, where its answer was taken for all matrices at once
  AssignmentReport report;
};

// One search; the limit of `options` begins with it.
class LoadSearch {
 public:
  explicit LoadSearch(const SolverOptions& options);

  // Matrices whose costs fall in the same steps are balanced by themselves, so that every step of a
  // cycle is; then the fullest holding of some steps goes to the rank that has least in steps
  // together with them, so the makespan of each stays. Where that breaks a cap, all matrices are
  // balanced as if in one step. The report is of the steps that have most. FailedPrecondition names
  // a matrix for which no rank has room.
  absl::StatusOr<FoundLoads> Run(const AssignmentProblem& problem, const RunCosts& costs) const;

 private:
  absl::StatusOr<FoundLoads> RunInOneStep(const AssignmentProblem& problem,
                                          const RunCosts& costs) const;
  absl::StatusOr<FoundLoads> RunByStep(const AssignmentProblem& problem,
                                       const RunCosts& costs) const;

  SolverOptions options_;
  PatternSearchOptions patterns_;
};

}  // namespace weft::scheduler
