// Names of the plan's enumerators, as they appear in plans, traces and on command lines.
#include <array>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "weft/ownership.h"
#include "weft/plan.h"

namespace weft {
namespace {

template <typename Enum, std::size_t kCount>
std::string_view At(const std::array<std::string_view, kCount>& names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < kCount ? names[index] : std::string_view("invalid");
}

constexpr std::array<std::string_view, 4> kLayouts = {"replicated", "sharded", "owned",
                                                      "node_sharded"};
constexpr std::array<std::string_view, 3> kGradients = {"local", "reduced", "replica"};
constexpr std::array<std::string_view, 3> kRules = {"muon", "elementwise", "custom"};
constexpr std::array<std::string_view, 5> kStrategies = {"replicated", "gather", "owner",
                                                         "node_local", "layerwise"};
constexpr std::array<std::string_view, kStageCount> kStages = {
    "submitted", "reduced", "orthogonalized", "applied", "published", "delivered"};
constexpr std::array<std::string_view, kLaneCount> kLanes = {"compute", "intra", "inter", "caller"};
constexpr std::array<std::string_view, 3> kTriggers = {"submitted", "step_closed", "needed"};
constexpr std::array<std::string_view, 20> kOps = {
    "all_reduce",    "reduce",   "broadcast",    "all_gather",          "reduce_scatter",
    "gather",        "scatter",  "verdict",      "check_gradient",      "momentum",
    "orthogonalize", "row_norm", "norm_squares", "row_norm_by_squares", "apply",
    "elementwise",   "custom",   "copy_rows",    "accumulate",          "use"};
constexpr std::array<std::string_view, 3> kWhens = {"always", "refresh", "between"};
constexpr std::array<std::string_view, kSlotCount> kSlots = {
    "none",          "gradient",       "node_gradient",   "reduced_gradient",
    "pass_gradient", "whole_gradient", "update",          "whole_update",
    "direction",     "node_direction", "shard_direction", "weight",
    "node_weight",   "whole_weight",   "packed_weight",   "node_update",
    "norm_squares"};
constexpr std::array<std::string_view, 2> kSolvers = {"heuristic", "milp"};
constexpr std::array<std::string_view, 3> kPassThrough = {"never", "auto", "always"};
constexpr std::array<std::string_view, 3> kMethods = {"LPT", "local search", "MILP"};

template <typename Enum, std::size_t kCount>
absl::StatusOr<Enum> Parse(const std::array<std::string_view, kCount>& names, const char* what,
                           std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
    known += (i == 0 ? "" : i + 1 == kCount ? " or " : ", ");
    known += names[i];
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " '", std::string(name), "' is unknown; it must be ", known, "."));
}

}  // namespace

std::string_view Name(Layout layout) { return At(kLayouts, layout); }
std::string_view Name(GradientKind kind) { return At(kGradients, kind); }
std::string_view Name(RuleKind rule) { return At(kRules, rule); }
std::string_view Name(Strategy strategy) { return At(kStrategies, strategy); }
std::string_view Name(Stage stage) { return At(kStages, stage); }
std::string_view Name(Trigger trigger) { return At(kTriggers, trigger); }
std::string_view Name(When when) { return At(kWhens, when); }
std::string_view Name(Lane lane) { return At(kLanes, lane); }
std::string_view Name(OpKind kind) { return At(kOps, kind); }
std::string_view Name(Slot slot) { return At(kSlots, slot); }
std::string_view Name(OwnerSolver solver) { return At(kSolvers, solver); }
std::string_view Name(PassThrough pass_through) { return At(kPassThrough, pass_through); }
std::string_view Name(AssignmentMethod method) { return At(kMethods, method); }

absl::StatusOr<Strategy> ParseStrategy(std::string_view name) {
  return Parse<Strategy>(kStrategies, "strategy", name);
}

absl::StatusOr<Layout> ParseLayout(std::string_view name) {
  return Parse<Layout>(kLayouts, "layout", name);
}

bool IsCollective(OpKind kind) { return kind <= OpKind::kVerdict; }

absl::StatusOr<OwnerSolver> ParseOwnerSolver(std::string_view name) {
  return Parse<OwnerSolver>(kSolvers, "owner solver", name);
}

absl::StatusOr<PassThrough> ParsePassThrough(std::string_view name) {
  return Parse<PassThrough>(kPassThrough, "pass-through", name);
}

}  // namespace weft
