// The owners of a plan: found on one rank, the same on all.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/communicators.h"
#include "weft/clock.h"
#include "weft/plan.h"
#include "weft/runtime.h"

namespace weft::runtime {

// The plan for `request` with owners as the options ask for, on each rank of a world. Collective
// where `communicators` is not null; rank 0 is then the one that solves, and its error is that of
// all ranks. With null: the same by this process alone. Errors: as BuildPlan().
absl::StatusOr<Plan> BuildWithOwners(PlanRequest request, const RuntimeOptions& options,
                                     const Clock& clock, int rank, Communicators* communicators);

}  // namespace weft::runtime
