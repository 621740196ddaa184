#include "device/math_check.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/product_check.h"

namespace weft::device {
namespace {

absl::Status CheckVector(const char* name, std::int64_t count, const void* data) {
  if (count < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the element count ", count, " is negative"));
  }
  if (count > 0 && data == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the ", name, " has no data"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckConvert(const Matrix& x, bool transpose, const Matrix& y) {
  WEFT_RETURN_IF_ERROR(CheckMatrix("X", x, /*with_data=*/true));
  WEFT_RETURN_IF_ERROR(CheckMatrix("Y", y, /*with_data=*/true));
  const std::int64_t rows = transpose ? x.cols : x.rows;
  const std::int64_t cols = transpose ? x.rows : x.cols;
  if (y.rows != rows || y.cols != cols || y.batch != x.batch) {
    return absl::InvalidArgumentError(absl::StrCat("a ", x.rows, " x ", x.cols, " matrix (batch ",
                                                   x.batch, ")", transpose ? " transposed" : "",
                                                   " does not fit into ", y.rows, " x ", y.cols,
                                                   " (batch ", y.batch, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckNormalize(const Matrix& u, bool transpose, float floor, const Matrix& x) {
  WEFT_RETURN_IF_ERROR(CheckConvert(u, transpose, x));
  if (u.dtype != DType::kF32) {
    return absl::InvalidArgumentError("only an fp32 matrix can be normalized");
  }
  if (!(floor >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the norm floor must not be negative, but is ", floor));
  }
  return absl::OkStatus();
}

namespace {

absl::Status CheckFactors(float eps, float gamma) {
  if (!(eps >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the eps of a row norm must not be negative, but is ", eps));
  }
  if (!std::isfinite(gamma)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gamma of a row norm must be finite, but is ", gamma));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckColumnSquares(const Matrix& x, float unit) {
  WEFT_RETURN_IF_ERROR(CheckConvert(x, /*transpose=*/false, x));
  if (x.dtype != DType::kF32 || x.batch != 1) {
    return absl::InvalidArgumentError("norms of columns are of one fp32 matrix");
  }
  if (!(unit > 0) || !std::isfinite(unit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the unit of column norms must be a positive number, but is ", unit));
  }
  return absl::OkStatus();
}

absl::Status CheckDivideColumns(const Matrix& x, const Math::ColumnNorms& norms, const Matrix& y) {
  WEFT_RETURN_IF_ERROR(CheckColumnSquares(x, norms.unit));
  WEFT_RETURN_IF_ERROR(CheckColumnSquares(y, norms.unit));
  WEFT_RETURN_IF_ERROR(CheckConvert(x, /*transpose=*/false, y));
  return CheckFactors(norms.eps, norms.gamma);
}

absl::Status CheckRowNorm(const Matrix& x, float eps, float gamma, const Matrix& y) {
  WEFT_RETURN_IF_ERROR(CheckConvert(x, /*transpose=*/false, y));
  return CheckFactors(eps, gamma);
}

absl::Status CheckShiftDiagonal(const Matrix& x, const Matrix& y) {
  WEFT_RETURN_IF_ERROR(CheckConvert(x, /*transpose=*/false, y));
  if (x.rows != x.cols || x.dtype != y.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a diagonal is shifted in square matrices of one dtype, not in ", x.rows, " x ", x.cols));
  }
  if (!IsEmpty(x) && x.data == y.data) {
    return absl::InvalidArgumentError("X and Y of a shift overlap");
  }
  return absl::OkStatus();
}

absl::Status CheckNorm(std::int64_t count, const void* x, const float* norm) {
  WEFT_RETURN_IF_ERROR(CheckVector("vector", count, x));
  if (norm == nullptr) return absl::InvalidArgumentError("the norm has no place to go");
  return absl::OkStatus();
}

absl::Status CheckAdd(std::int64_t count, const void* x, const void* y) {
  WEFT_RETURN_IF_ERROR(CheckVector("vector", count, x));
  WEFT_RETURN_IF_ERROR(CheckVector("sum", count, y));
  if (count > 0 && x == y) {
    return absl::InvalidArgumentError("the sum overlaps what is added to it");
  }
  return absl::OkStatus();
}

absl::Status CheckMomentum(std::int64_t count, const void* gradient, const float* momentum,
                           const float* update) {
  WEFT_RETURN_IF_ERROR(CheckVector("gradient", count, gradient));
  WEFT_RETURN_IF_ERROR(CheckVector("momentum", count, momentum));
  WEFT_RETURN_IF_ERROR(CheckVector("update", count, update));
  if (count > 0 && (update == momentum || update == gradient)) {
    return absl::InvalidArgumentError("the update overlaps the momentum or the gradient");
  }
  return absl::OkStatus();
}

absl::Status CheckApply(std::int64_t count, const float* direction, const void* weight) {
  WEFT_RETURN_IF_ERROR(CheckVector("direction", count, direction));
  WEFT_RETURN_IF_ERROR(CheckVector("weight", count, weight));
  if (count > 0 && weight == direction) {
    return absl::InvalidArgumentError("the weight overlaps the direction");
  }
  return absl::OkStatus();
}

absl::Status CheckApplyMatrix(const Matrix& direction, const Matrix& weight) {
  WEFT_RETURN_IF_ERROR(CheckConvert(direction, /*transpose=*/false, weight));
  if (direction.dtype != DType::kF32) {
    return absl::InvalidArgumentError("only an fp32 direction can be applied");
  }
  if (!IsEmpty(weight) && weight.data == direction.data) {
    return absl::InvalidArgumentError("the weight overlaps the direction");
  }
  return absl::OkStatus();
}

absl::Status CheckAdamW(const Math::AdamWArguments& arguments) {
  WEFT_RETURN_IF_ERROR(CheckVector("gradient", arguments.count, arguments.gradient));
  WEFT_RETURN_IF_ERROR(CheckVector("first moment", arguments.count, arguments.m));
  WEFT_RETURN_IF_ERROR(CheckVector("second moment", arguments.count, arguments.v));
  WEFT_RETURN_IF_ERROR(CheckVector("weight", arguments.count, arguments.weight));
  if (arguments.count > 0 && arguments.applied_steps == nullptr) {
    return absl::InvalidArgumentError("AdamW has no counter of applied steps");
  }
  return absl::OkStatus();
}

absl::Status CheckVerdict(const VerdictArguments& arguments) {
  if (arguments.values == nullptr || arguments.controls == nullptr) {
    return absl::InvalidArgumentError("a verdict has no place for its values or its controls");
  }
  return absl::OkStatus();
}

}  // namespace weft::device
