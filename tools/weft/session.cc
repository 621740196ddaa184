#include "tools/weft/session.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/weft/status_macros.h"
#include "tools/weft/table.h"
#include "weft/safetensors.h"

namespace weft::tool {
namespace {

absl::Status RouteAndPlan(Session& session) {
  WEFT_ASSIGN_OR_RETURN(session.routing, RouteTensors(session.model, session.gradients,
                                                      session.options.adamw_patterns));
  if (session.routing.matrices.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(session.model.path, ": no tensor of it would be updated"));
  }
  session.specs = SpecsOf(session.model, session.routing, session.settings);
  WEFT_ASSIGN_OR_RETURN(session.plan, PlanFor(session.specs, session.settings.runtime));
  return absl::OkStatus();
}

// All local ranks live on this machine; the pages of mapped files can be dropped and do not count.
absl::Status CheckMemory(const Session& session) {
  const Plan& plan = session.plan;
  const int size = plan.topology.grid.size();
  double needed = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (session.options.rank >= 0 && rank != session.options.rank) continue;
    const RankCost cost = CostOfRank(plan, rank);
    needed += static_cast<double>(cost.state_bytes) + static_cast<double>(cost.buffer_bytes);
    for (std::size_t i = 0; i < plan.matrices.size(); ++i) {
      needed +=
          static_cast<double>(SlotRows(plan, static_cast<std::int32_t>(i), Slot::kWeight, rank)) *
          static_cast<double>(plan.matrices[i].cols) *
          static_cast<double>(SizeOf(plan.matrices[i].dtype));
    }
  }
  const double machine =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed > machine) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the run needs ", BytesText(needed), " of memory, the machine has ", BytesText(machine)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Session> PreparePlan(const Options& options) {
  Session session;
  session.options = options;
  WEFT_ASSIGN_OR_RETURN(session.settings, SettingsOf(options));
  const int size = session.settings.runtime.topology.grid.size();
  if (options.plan_rank < -1 || options.plan_rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank ", options.plan_rank, " is not one of the ", size, " ranks"));
  }
  WEFT_ASSIGN_OR_RETURN(session.model, LoadModel(options.model));
  WEFT_RETURN_IF_ERROR(RouteAndPlan(session));
  return session;
}

absl::StatusOr<Session> PrepareRun(const Options& options) {
  Session session;
  session.options = options;
  WEFT_ASSIGN_OR_RETURN(session.settings, SettingsOf(options));
  WEFT_RETURN_IF_ERROR(CheckRunOptions(options, session.settings.runtime.topology));
  session.settings.runtime.deadline = absl::Seconds(options.deadline);
  session.settings.runtime.trace = !options.trace.empty();
  WEFT_ASSIGN_OR_RETURN(session.model, LoadModel(options.model));
  if (options.gradients.empty()) {
    session.gradients = Gradients::Seeded(options.seed);
  } else {
    WEFT_ASSIGN_OR_RETURN(session.gradients, Gradients::FromFile(options.gradients, session.model));
  }
  WEFT_RETURN_IF_ERROR(RouteAndPlan(session));
  WEFT_RETURN_IF_ERROR(CheckMemory(session));
  if (options.rank <= 0) {
    if (!options.out.empty()) WEFT_RETURN_IF_ERROR(CheckWritable(options.out));
    if (!options.trace.empty()) WEFT_RETURN_IF_ERROR(CheckWritable(options.trace));
  }
  return session;
}

}  // namespace weft::tool
