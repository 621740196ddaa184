// Argument checks of Math's element-wise calls, for all devices: the rules stated in weft/math.h.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "weft/math.h"
#include "weft/verdict.h"

namespace weft::device {

absl::Status CheckNormalize(const Matrix& u, bool transpose, float floor, const Matrix& x);
absl::Status CheckColumnSquares(const Matrix& x, float unit);
absl::Status CheckDivideColumns(const Matrix& x, const Math::ColumnNorms& norms, const Matrix& y);
absl::Status CheckRowNorm(const Matrix& x, float eps, float gamma, const Matrix& y);
absl::Status CheckConvert(const Matrix& x, bool transpose, const Matrix& y);
absl::Status CheckShiftDiagonal(const Matrix& x, const Matrix& y);
absl::Status CheckNorm(std::int64_t count, const void* x, const float* norm);
absl::Status CheckAdd(std::int64_t count, const void* x, const void* y);
absl::Status CheckMomentum(std::int64_t count, const void* gradient, const float* momentum,
                           const float* update);
absl::Status CheckApply(std::int64_t count, const float* direction, const void* weight);
absl::Status CheckApplyMatrix(const Matrix& direction, const Matrix& weight);
absl::Status CheckAdamW(const Math::AdamWArguments& arguments);
absl::Status CheckVerdict(const VerdictArguments& arguments);

}  // namespace weft::device
