// In which of a period's steps each periodic matrix runs NS.
#pragma once

#include <vector>

#include "weft/plan.h"

namespace weft::scheduler {

// Spreads the NS of matrices of one period evenly over its steps, by FLOPs: the dearest first, each
// into the step that has least so far. It goes by the matrices alone: whatever the cluster and the
// strategy, a matrix has its NS in the same steps.
void SpreadPhases(std::vector<PlanMatrix>& matrices);

}  // namespace weft::scheduler
