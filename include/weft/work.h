// What the cost model is asked about a model's matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "weft/cost_model.h"
#include "weft/runtime.h"
#include "weft/update.h"

#pragma GCC visibility push(default)
namespace weft {

// One Newton-Schulz run on a rows x cols matrix. InvalidArgument as Validate().
absl::StatusOr<ComputeWork> NewtonSchulzWork(const NewtonSchulzOptions& options, std::int64_t rows,
                                             std::int64_t cols);
// Math::RowNorm of an fp32 matrix along its short side's rows.
ComputeWork RowNormWork(std::int64_t rows, std::int64_t cols);

// One entry per matrix, for MakeBatchTables(): Newton-Schulz for Muon (momentum and the weight's
// update, which cost a few passes over memory, are left out); nothing for AdamW, which has no
// owner but in the owned layout: there seven passes over memory. A custom rule always runs alone
// and counts with its `flops`, at the rate of a Newton-Schulz run of as many. InvalidArgument names
// the matrix.
absl::StatusOr<std::vector<std::optional<OwnedWork>>> OwnedWorkOf(
    const std::vector<MatrixSpec>& matrices);

}  // namespace weft
#pragma GCC visibility pop
