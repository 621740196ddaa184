// Owners with a stated distance from the best possible. Pure: no threads, no devices, and no clock
// but the one passed in.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/assignment_problem.h"
#include "weft/clock.h"
#include "weft/ownership.h"
#include "weft/plan.h"

namespace weft::scheduler {

struct SolverOptions {
  // Each method ends as soon as the makespan is within this of the lower bound, and the next one
  // does not begin.
  double gap = 0.005;
  // Off, or in a build without CBC: LPT and local search alone.
  bool milp = true;
  int most_nodes = 1000;  // of branch and bound, per makespan that is tried
  // A backstop for the program alone, since how far it gets in a time depends on the machine. With
  // no clock there is none, and equal problems give equal owners everywhere.
  const Clock* clock = nullptr;
  Nanos limit = 5'000'000'000;
};

// Matrices of one class that their owner runs together.
struct OwnerBatch {
  int rank = 0;
  std::vector<std::int32_t> matrices;  // ascending
};

struct OwnerAssignment {
  std::vector<int> owners;          // per matrix; -1 for those that get none
  std::vector<OwnerBatch> batches;  // by rank, then by first matrix; singles included
  AssignmentReport report;
};

// Never a larger makespan than LPT's. Equal-cost matrices are spread after all else, which keeps
// loads, state and traffic. FailedPrecondition if a cap cannot be kept, or if no way to keep it was
// found: names the matrix that found no room.
absl::StatusOr<OwnerAssignment> SolveAssignment(const AssignmentProblem& problem,
                                                const SolverOptions& options);

// The batches that the owners of `problem` run: the cheapest by the tables; matrices next to each
// other in use order share one. A function of owners and tables alone, so who knows those needs
// nothing else.
std::vector<OwnerBatch> BatchesOf(const AssignmentProblem& problem, const std::vector<int>& owners);

// FailedPrecondition if `owners` break a cap; names the rank or the group.
absl::Status CheckCaps(const AssignmentProblem& problem, const std::vector<int>& owners);

// InvalidArgument for options that do not fit the plan's matrices; names the matrix.
absl::Status CheckOwnership(const Plan& plan, const OwnershipOptions& options);

// The problem that a request poses: matrices that get an owner, buckets by their first, and their
// indices in the request. `plan` has its matrices and buckets, and `options` are checked against
// it. Matrices that cost the same, and that no cap tells apart, are one class.
struct PosedProblem {
  AssignmentProblem problem;
  std::vector<std::int32_t> matrices;
};
PosedProblem Pose(const Plan& plan, const OwnershipOptions& options);

// Owners for a request, which are meant for OwnershipOptions::owners of the same request. With a
// clock, or across builds with and without CBC, ranks may differ: call it on one rank, send the
// owners to the others, and build the plan from them everywhere; Fingerprint() covers owners, so
// comparing it finds a rank that got others. Errors: as BuildPlan() and SolveAssignment(). Owners
// that the request already has are not looked at.
absl::StatusOr<OwnerAssignment> SolveOwners(const PlanRequest& request,
                                            const SolverOptions& options);

}  // namespace weft::scheduler
