// Which matrices a runtime passes through.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "weft/runtime.h"

namespace weft::runtime {

// By matrix, PlanMatrix::pass_through. Requires checked and completed specs. Every rank with equal
// specs, options and costs finds the same.
absl::StatusOr<std::vector<bool>> PassThroughOf(const std::vector<MatrixSpec>& specs,
                                                const RuntimeOptions& options);

}  // namespace weft::runtime
