// Everything that is known, loaded and checked before work begins.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/weft/costs.h"
#include "tools/weft/gradients.h"
#include "tools/weft/model.h"
#include "tools/weft/options.h"
#include "tools/weft/routing.h"
#include "weft/plan.h"
#include "weft/runtime.h"
#include "weft/strategy_choice.h"
#include "weft/strategy_switch.h"

namespace weft::tool {

struct Session {
  Options options;
  Settings settings;
  Model model;
  Gradients gradients = Gradients::Seeded(0);
  Routing routing;
  std::vector<MatrixSpec> specs;  // one per routed matrix, weights null
  PlanCosts costs;
  Plan plan;
  // With --strategy auto; its plan is the one above.
  std::optional<StrategyChoice> choice;
  std::optional<StrategySwitch> strategy_switch;  // with --switch-nodes
};

// For `weft plan`; every float tensor is taken to have a gradient.
absl::StatusOr<Session> PreparePlan(const Options& options);
// For `weft run`: also that the options of a run make sense, that its outputs can be written and
// that the ranks of this machine fit into its memory.
absl::StatusOr<Session> PrepareRun(const Options& options);

// Whether both paths lead to one file, which need not exist yet.
bool SameFile(const std::string& a, const std::string& b);

}  // namespace weft::tool
