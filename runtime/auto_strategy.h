// Strategy `auto`: the plan whose step is predicted to be the shortest, the same on all ranks.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "runtime/communicators.h"
#include "weft/clock.h"
#include "weft/plan.h"
#include "weft/runtime.h"
#include "weft/strategy_choice.h"

namespace weft::runtime {

// As if the options had named the strategy. Given owners are for `owner` alone.
RuntimeOptions OptionsUnder(Strategy strategy, const RuntimeOptions& options);

// The choice for options.auto_strategy by this process alone, with owners as the options ask for.
// Requires checked and completed specs. Errors: as ChooseAmong().
absl::StatusOr<StrategyChoice> ChooseShortestStep(const std::vector<MatrixSpec>& specs,
                                                  const RuntimeOptions& options,
                                                  const Clock& clock);

// Collective: rank 0 chooses, and logs why; the others take its strategy and owners. Its error is
// that of all ranks.
absl::StatusOr<Plan> PlanOfShortestStep(const std::vector<MatrixSpec>& specs,
                                        const RuntimeOptions& options, const Clock& clock, int rank,
                                        Communicators& communicators, StrategyReport& report);

}  // namespace weft::runtime
