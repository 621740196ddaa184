// Which matrices a runtime passes through.
#pragma once

#include <optional>
#include <vector>

#include "weft/cost_model.h"
#include "weft/runtime.h"
#include "weft/work.h"

namespace weft::runtime {

// By matrix, PlanMatrix::pass_through. Requires checked and completed specs, and OwnedWorkOf()
// them. `forms` are the plan's. Every rank with equal specs, options
// and costs finds the same.
std::vector<bool> PassThroughOf(const std::vector<MatrixSpec>& specs, const RuntimeOptions& options,
                                const CostModel& model, const FormChoices& forms,
                                const std::vector<std::optional<OwnedWork>>& work);

}  // namespace weft::runtime
