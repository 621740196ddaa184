#include "runtime/owners.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "runtime/messages.h"
#include "scheduler/owner_assignment.h"
#include "scheduler/slots.h"
#include "weft/ownership.h"

namespace weft::runtime {
namespace {

// Whether they are to be found before BuildPlan(), which else gives them itself or takes given
// ones.
bool AreToBeFound(const PlanRequest& request, const RuntimeOptions& options) {
  const bool owners_matter =
      scheduler::HasOwners(request.strategy) && request.topology.grid.size() > 1;
  const bool given = !request.ownership.owners.empty();
  return owners_matter && !given && options.owner_solver != OwnerSolver::kHeuristic;
}

absl::StatusOr<FoundOwners> Solve(const PlanRequest& request, const RuntimeOptions& options,
                                  const Clock& clock) {
  scheduler::SolverOptions solver;
  // Without a clock nothing but the request decides.
  if (options.owner_time_limit < absl::InfiniteDuration()) {
    solver.clock = &clock;
    solver.limit = absl::ToInt64Nanoseconds(std::min(options.owner_time_limit, absl::Hours(24)));
  }
  WEFT_ASSIGN_OR_RETURN(scheduler::OwnerAssignment found, SolveOwners(request, solver));
  return FoundOwners{{found.owners.begin(), found.owners.end()}, found.report};
}

// As bytes: the ranks are processes of one build.
static_assert(std::is_trivially_copyable_v<AssignmentReport>);

std::string Pack(const FoundOwners& solved) {
  const std::size_t bytes = solved.owners.size() * sizeof(std::int32_t);
  std::string text(sizeof(AssignmentReport) + bytes, '\0');
  std::memcpy(text.data(), &solved.report, sizeof(AssignmentReport));
  std::memcpy(text.data() + sizeof(AssignmentReport), solved.owners.data(), bytes);
  return text;
}

absl::StatusOr<FoundOwners> Unpack(const std::string& text, std::size_t matrices) {
  const std::size_t bytes = matrices * sizeof(std::int32_t);
  if (text.size() != sizeof(AssignmentReport) + bytes) {
    return absl::InternalError("rank 0 sent owners in another form; are they the same build?");
  }
  FoundOwners solved;
  solved.owners.resize(matrices);
  std::memcpy(&solved.report, text.data(), sizeof(AssignmentReport));
  std::memcpy(solved.owners.data(), text.data() + sizeof(AssignmentReport), bytes);
  return solved;
}

}  // namespace

absl::StatusOr<std::optional<FoundOwners>> FindOwners(const PlanRequest& request,
                                                      const RuntimeOptions& options,
                                                      const Clock& clock) {
  if (!AreToBeFound(request, options)) return std::optional<FoundOwners>();
  return Solve(request, options, clock);
}

absl::StatusOr<Plan> BuildWith(const std::optional<FoundOwners>& found, PlanRequest request) {
  const base::Range range(kBuildPlan, request.topology.grid.size());
  if (!found) return BuildPlan(request);
  request.ownership.owners = found->owners;
  absl::StatusOr<Plan> plan = BuildPlan(request);
  if (plan.ok()) plan->owner_report = found->report;
  return plan;
}

absl::StatusOr<Plan> BuildWithOwners(PlanRequest request, const RuntimeOptions& options,
                                     const Clock& clock, int rank, Communicators* communicators,
                                     const std::optional<FoundOwners>& found) {
  absl::StatusOr<std::optional<FoundOwners>> owners = found;
  if (AreToBeFound(request, options)) {
    if (rank == 0 && !found) owners = FindOwners(request, options, clock);
    if (communicators != nullptr) {
      WEFT_RETURN_IF_ERROR(communicators->Agree(owners.status(), "owners"));
      WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                            communicators->ExchangeText(rank == 0 ? Pack(**owners) : "", "owners"));
      owners = Unpack(texts[0], request.matrices.size());
    }
  }
  absl::StatusOr<Plan> plan =
      owners.ok() ? BuildWith(*owners, std::move(request)) : owners.status();
  if (communicators != nullptr) WEFT_RETURN_IF_ERROR(communicators->Agree(plan.status(), "plan"));
  return plan;
}

}  // namespace weft::runtime
