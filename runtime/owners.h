// The owners of a plan: found on one rank, the same on all.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/communicators.h"
#include "weft/clock.h"
#include "weft/ownership.h"
#include "weft/plan.h"
#include "weft/runtime.h"

namespace weft::runtime {

// What rank 0 found.
struct FoundOwners {
  std::vector<std::int32_t> owners;  // for OwnershipOptions::owners
  AssignmentReport report;
};

// Owners for `request` as the options ask for, by this process alone; nothing where BuildPlan()
// needs none from outside. Errors: as BuildPlan().
absl::StatusOr<std::optional<FoundOwners>> FindOwners(const PlanRequest& request,
                                                      const RuntimeOptions& options,
                                                      const Clock& clock);

// With what FindOwners() said of the request.
absl::StatusOr<Plan> BuildWith(const std::optional<FoundOwners>& found, PlanRequest request);

// The plan for `request` with owners as the options ask for, on each rank of a world. Collective
// where `communicators` is not null; rank 0 is then the one that solves, unless it has `found`
// them, and its error is that of all ranks. With null: the same by this process alone. Errors: as
// BuildPlan().
absl::StatusOr<Plan> BuildWithOwners(PlanRequest request, const RuntimeOptions& options,
                                     const Clock& clock, int rank, Communicators* communicators,
                                     const std::optional<FoundOwners>& found = std::nullopt);

}  // namespace weft::runtime
