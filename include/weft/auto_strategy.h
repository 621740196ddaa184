// Strategy `auto` of RuntimeOptions::auto_strategy before there are devices or peers.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "weft/runtime.h"
#include "weft/strategy_choice.h"
#include "weft/strategy_switch.h"

#pragma GCC visibility push(default)
namespace weft {

// What Commit() would choose on rank 0, and PlanFor() plans; without auto_strategy beside no
// trainer. Errors: as PlanFor(); FailedPrecondition where no strategy is feasible.
absl::StatusOr<StrategyChoice> ChoiceFor(const std::vector<MatrixSpec>& matrices,
                                         const RuntimeOptions& options);

// From how many nodes on `node_local` is predicted to be faster than `owner`: FindSwitch() with the
// plans that runtimes on so many nodes of the topology's kind would commit. Owners are those of
// OwnerSolver::kHeuristic, given ones are left out; shards are cut anew where the world is another.
absl::StatusOr<StrategySwitch> SwitchFor(const std::vector<MatrixSpec>& matrices,
                                         const RuntimeOptions& options, int most_nodes);

}  // namespace weft
#pragma GCC visibility pop
