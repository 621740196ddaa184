#include "runtime/owners.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "runtime/messages.h"
#include "scheduler/owner_assignment.h"
#include "weft/ownership.h"

namespace weft::runtime {
namespace {

struct Solved {
  std::vector<std::int32_t> owners;
  AssignmentReport report;
};

absl::StatusOr<Solved> Solve(const PlanRequest& request, const RuntimeOptions& options,
                             const Clock& clock) {
  scheduler::SolverOptions solver;
  // Without a clock nothing but the request decides.
  if (options.owner_time_limit < absl::InfiniteDuration()) {
    solver.clock = &clock;
    solver.limit = absl::ToInt64Nanoseconds(std::min(options.owner_time_limit, absl::Hours(24)));
  }
  WEFT_ASSIGN_OR_RETURN(scheduler::OwnerAssignment found, SolveOwners(request, solver));
  return Solved{{found.owners.begin(), found.owners.end()}, found.report};
}

// As bytes: the ranks are processes of one build.
static_assert(std::is_trivially_copyable_v<AssignmentReport>);

std::string Pack(const Solved& solved) {
  const std::size_t bytes = solved.owners.size() * sizeof(std::int32_t);
  std::string text(sizeof(AssignmentReport) + bytes, '\0');
  std::memcpy(text.data(), &solved.report, sizeof(AssignmentReport));
  std::memcpy(text.data() + sizeof(AssignmentReport), solved.owners.data(), bytes);
  return text;
}

absl::StatusOr<Solved> Unpack(const std::string& text, std::size_t matrices) {
  const std::size_t bytes = matrices * sizeof(std::int32_t);
  if (text.size() != sizeof(AssignmentReport) + bytes) {
    return absl::InternalError("rank 0 sent owners in another form; are they the same build?");
  }
  Solved solved;
  solved.owners.resize(matrices);
  std::memcpy(&solved.report, text.data(), sizeof(AssignmentReport));
  std::memcpy(solved.owners.data(), text.data() + sizeof(AssignmentReport), bytes);
  return solved;
}

}  // namespace

absl::StatusOr<Plan> BuildWithOwners(PlanRequest request, const RuntimeOptions& options,
                                     const Clock& clock, int rank, Communicators* communicators) {
  const base::Range range(kBuildPlan, request.topology.grid.size());
  const auto agreed = [&](absl::StatusOr<Plan> plan) -> absl::StatusOr<Plan> {
    if (communicators != nullptr) {
      WEFT_RETURN_IF_ERROR(communicators->Agree(plan.status(), "plan"));
    }
    return plan;
  };
  const bool owners_matter =
      (request.strategy == Strategy::kOwner || request.strategy == Strategy::kNodeLocal ||
       request.strategy == Strategy::kLayerwise) &&
      request.topology.grid.size() > 1;
  const bool given = !request.ownership.owners.empty();
  if (given || options.owner_solver == OwnerSolver::kHeuristic || !owners_matter) {
    return agreed(BuildPlan(request));
  }
  absl::StatusOr<Solved> solved = Solved{};
  if (rank == 0) solved = Solve(request, options, clock);
  if (communicators != nullptr) {
    WEFT_RETURN_IF_ERROR(communicators->Agree(solved.status(), "owners"));
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                          communicators->ExchangeText(rank == 0 ? Pack(*solved) : "", "owners"));
    solved = Unpack(texts[0], request.matrices.size());
  }
  if (!solved.ok()) return agreed(solved.status());
  request.ownership.owners = std::move(solved->owners);
  absl::StatusOr<Plan> plan = BuildPlan(request);
  if (plan.ok()) plan->owner_report = solved->report;
  return agreed(std::move(plan));
}

}  // namespace weft::runtime
