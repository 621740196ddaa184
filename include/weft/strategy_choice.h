// Strategy `auto`: the cheapest strategy that can serve a request, by what EvaluatePlan() predicts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "weft/cost_model.h"
#include "weft/plan.h"
#include "weft/plan_evaluator.h"

#pragma GCC visibility push(default)
namespace weft {

struct StrategyAlternative {
  Strategy strategy = Strategy::kOwner;
  // Why it is out of the question, one sentence; empty if it is not.
  std::string infeasible;
  // Where it is feasible:
  double step_seconds = 0;      // CyclePrediction's
  double exposed_seconds = 0;   // the same
  std::int64_t peak_bytes = 0;  // buffers and optimizer state of the rank that has most
  std::string bound;            // BoundText() of the slowest step
  // Matrices that do not take the strategy's own path (PlanMatrix::fallback).
  int fallbacks = 0;
};

// What was chosen and why.
struct StrategyReport {
  Strategy strategy = Strategy::kOwner;
  std::string reason;  // one sentence for people
  // Feasible ones by predicted step, the infeasible ones behind them; those that are equal by their
  // order in Strategy.
  std::vector<StrategyAlternative> alternatives;
};

struct StrategyChoice : StrategyReport {
  Plan plan;                   // of the one that was chosen
  CyclePrediction prediction;  // of it
};

// All that Strategy names.
std::vector<Strategy> AllStrategies();

// FailedPrecondition where a rank of the plan holds more bytes of optimizer state than `cap`,
// element-wise rules' apart; 0: any number. OwnershipOptions::state_bytes_cap binds owners alone.
absl::Status CheckStateCap(const Plan& plan, std::int64_t cap);

// Makes the plan of a strategy, or says why there is none.
using PlanMaker = std::function<absl::StatusOr<Plan>(Strategy)>;

// The one of `strategies` whose predicted step is shortest, in the mean over a cycle; of steps that
// are equal the one that comes first in Strategy, whatever the order here. One whose plan `make`
// refuses is infeasible by the message. FailedPrecondition with all reasons where none is feasible,
// or the refusal itself where it is the same of all; EvaluatePlan()'s InvalidArgument for a bad
// question; InvalidArgument for no strategies.
absl::StatusOr<StrategyChoice> ChooseAmong(absl::Span<const Strategy> strategies,
                                           const PlanMaker& make, const CostModel& model,
                                           const TrainerModel& trainer = {},
                                           absl::Span<const std::optional<OwnedWork>> work = {});

// Among all strategies, with BuildPlan() of the request under each; its own strategy does not
// count. Strategies other than `owner` are asked without PlanMatrix::pass_through and given owners.
// A rank that holds more optimizer state than ownership.state_bytes_cap (0: any number),
// element-wise rules' apart, makes a strategy infeasible, as limits.buffer_bytes does. Pure: equal
// on all ranks.
absl::StatusOr<StrategyChoice> ChooseStrategy(const PlanRequest& request, const CostModel& model,
                                              const TrainerModel& trainer = {},
                                              absl::Span<const std::optional<OwnedWork>> work = {});

}  // namespace weft
#pragma GCC visibility pop
