#include "weft/strategy_choice.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "scheduler/slots.h"
#include "weft/plan_cost.h"

namespace weft {
namespace {

std::int64_t PeakBytes(const Plan& plan) {
  std::int64_t most = 0;
  for (int rank = 0; rank < plan.topology.grid.size(); ++rank) {
    const RankCost cost = CostOfRank(plan, rank);
    most = std::max(most, cost.buffer_bytes + cost.state_bytes);
  }
  return most;
}

std::string Seconds(double seconds) {
  return seconds < 1 ? absl::StrFormat("%.3g ms", 1e3 * seconds)
                     : absl::StrFormat("%.3g s", seconds);
}

std::string Reason(const std::vector<StrategyAlternative>& alternatives) {
  const StrategyAlternative& best = alternatives[0];
  std::string reason = absl::StrCat(std::string(Name(best.strategy)), " is predicted to take ",
                                    Seconds(best.step_seconds), " per step");
  auto next = alternatives.begin() + 1;
  const auto is_feasible = [&] { return next != alternatives.end() && next->infeasible.empty(); };
  std::vector<std::string> equals;
  for (; is_feasible() && next->step_seconds <= best.step_seconds; ++next) {
    equals.emplace_back(Name(next->strategy));
  }
  if (!equals.empty()) {
    absl::StrAppend(&reason, ", as ", absl::StrJoin(equals, " and "),
                    " (of equal steps the simpler strategy is taken)");
  }
  if (!is_feasible()) return absl::StrCat(reason, "; no other strategy is feasible.");
  return absl::StrCat(reason, ", ", std::string(Name(next->strategy)), " ",
                      Seconds(next->step_seconds), "; the step is bound by ", best.bound, ".");
}

}  // namespace

std::vector<Strategy> AllStrategies() {
  std::vector<Strategy> all;
  for (int i = 0; i <= static_cast<int>(kLastStrategy); ++i) {
    all.push_back(static_cast<Strategy>(i));
  }
  return all;
}

absl::Status CheckStateCap(const Plan& plan, std::int64_t cap) {
  if (cap <= 0) return absl::OkStatus();
  std::vector<std::int64_t> bytes(plan.topology.grid.size(), 0);
  for (std::size_t m = 0; m < plan.matrices.size(); ++m) {
    const PlanMatrix& matrix = plan.matrices[m];
    if (matrix.rule == RuleKind::kElementwise) continue;
    const scheduler::SlotExtents extents(plan, static_cast<std::int32_t>(m));
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      bytes[rank] +=
          extents.RuleRows(static_cast<int>(rank)) * matrix.cols * matrix.state_bytes_per_element;
    }
  }
  const auto most = std::max_element(bytes.begin(), bytes.end());
  if (*most <= cap) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", most - bytes.begin(), " would hold ", *most,
                   " bytes of optimizer state, more than the cap of ", cap, "."));
}

absl::StatusOr<StrategyChoice> ChooseAmong(absl::Span<const Strategy> strategies,
                                           const PlanMaker& make, const CostModel& model,
                                           const TrainerModel& trainer,
                                           absl::Span<const std::optional<OwnedWork>> work) {
  if (strategies.empty())
    return absl::InvalidArgumentError("there are no strategies to choose from.");
  StrategyChoice choice;
  bool found = false, alike = true;
  absl::Status refused;
  const auto before = [](double seconds, Strategy strategy, const StrategyChoice& than) {
    return std::tie(seconds, strategy) < std::tie(than.prediction.step_seconds, than.strategy);
  };
  for (const Strategy strategy : strategies) {
    StrategyAlternative alternative;
    alternative.strategy = strategy;
    absl::StatusOr<Plan> plan = make(strategy);
    if (!plan.ok()) {
      alternative.infeasible = std::string(plan.status().message());
      alike = alike && (refused.ok() || refused == plan.status());
      refused = plan.status();
      choice.alternatives.push_back(std::move(alternative));
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(CyclePrediction cycle, EvaluateCycle(*plan, model, trainer, work));
    alternative.step_seconds = cycle.step_seconds;
    alternative.exposed_seconds = cycle.exposed_seconds;
    alternative.peak_bytes = PeakBytes(*plan);
    alternative.bound = BoundText(cycle.slowest);
    for (const PlanMatrix& matrix : plan->matrices) {
      alternative.fallbacks += matrix.fallback.empty() ? 0 : 1;
    }
    choice.alternatives.push_back(std::move(alternative));
    if (found && !before(cycle.step_seconds, strategy, choice)) continue;
    found = true;
    choice.strategy = strategy;
    choice.plan = *std::move(plan);
    choice.prediction = std::move(cycle);
  }
  std::stable_sort(choice.alternatives.begin(), choice.alternatives.end(),
                   [](const StrategyAlternative& a, const StrategyAlternative& b) {
                     const bool no_a = !a.infeasible.empty(), no_b = !b.infeasible.empty();
                     return std::tie(no_a, a.step_seconds, a.strategy) <
                            std::tie(no_b, b.step_seconds, b.strategy);
                   });
  if (!found) {
    // Then it is no matter of the strategy.
    if (alike) return refused;
    return absl::FailedPreconditionError(
        absl::StrCat("no strategy is feasible: ",
                     absl::StrJoin(choice.alternatives, "; ",
                                   [](std::string* out, const StrategyAlternative& each) {
                                     absl::StrAppend(out, std::string(Name(each.strategy)), ": ",
                                                     absl::StripSuffix(each.infeasible, "."));
                                   }),
                     "."));
  }
  choice.reason = Reason(choice.alternatives);
  return choice;
}

absl::StatusOr<StrategyChoice> ChooseStrategy(const PlanRequest& request, const CostModel& model,
                                              const TrainerModel& trainer,
                                              absl::Span<const std::optional<OwnedWork>> work) {
  const auto make = [&](Strategy strategy) -> absl::StatusOr<Plan> {
    PlanRequest asked = request;
    asked.strategy = strategy;
    if (strategy != Strategy::kOwner) {
      asked.ownership.owners.clear();
      for (PlanMatrix& matrix : asked.matrices) matrix.pass_through = false;
    }
    WEFT_ASSIGN_OR_RETURN(Plan plan, BuildPlan(asked));
    WEFT_RETURN_IF_ERROR(CheckStateCap(plan, request.ownership.state_bytes_cap));
    return plan;
  };
  return ChooseAmong(AllStrategies(), make, model, trainer, work);
}

}  // namespace weft
