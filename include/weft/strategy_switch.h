// Where strategies `owner` and `node_local` change places as nodes are added. An owner's results
// have to cross nodes; owners on each node repeat the work instead. Which is cheaper depends on the
// number of nodes, the model and the links.
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

// Predicted steps on one number of nodes, seconds; infinite where the strategy is not feasible.
struct SwitchPoint {
  int nodes = 1;
  double owner_seconds = 0;
  double node_local_seconds = 0;

  // Equal steps go to `owner`, as everywhere.
  Strategy Shorter() const {
    return node_local_seconds < owner_seconds ? Strategy::kNodeLocal : Strategy::kOwner;
  }
};

struct StrategySwitch {
  // Ascending: 1, 2, 3, 4, 6, 8, 12, 16 and so on to the last, and what it took to find each change
  // between two of them to the node.
  std::vector<SwitchPoint> points;
  // Numbers of nodes from which on, until the next of them, the other strategy is shorter than the
  // one before; `owner` is it on one node, where the two are one.
  std::vector<int> changes;
  // From how many nodes on node_local is shorter up to the last that was looked at; 0: it is not.
  int nodes = 0;
  std::string reason;  // one sentence for people
};

// Makes the plan of a strategy on a topology, or says why there is none.
using PlanMakerOn = std::function<absl::StatusOr<Plan>(const Topology&, Strategy)>;

// Looks at 1 to `most_nodes` >= 1 nodes with the ranks and links of `model`'s topology; the trainer
// does the same on each rank, whatever their number. Between two neighbours of the list above that
// have the same shorter strategy no change is looked for. Errors: EvaluatePlan()'s InvalidArgument;
// InvalidArgument for a bad most_nodes; what the last plan is refused with where none is feasible.
absl::StatusOr<StrategySwitch> FindSwitch(const CostModel& model, int most_nodes,
                                          const PlanMakerOn& make, const TrainerModel& trainer = {},
                                          absl::Span<const std::optional<OwnedWork>> work = {});

// The same with BuildPlan() of the request; its own strategy and given owners do not count. Forms
// are chosen for each topology, and shards cut anew where the world is another.
absl::StatusOr<StrategySwitch> FindSwitch(const PlanRequest& request, const CostModel& model,
                                          int most_nodes, const TrainerModel& trainer = {},
                                          absl::Span<const std::optional<OwnedWork>> work = {});

}  // namespace weft
#pragma GCC visibility pop
