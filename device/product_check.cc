#include "device/product_check.h"

#include <bit>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::device {
namespace {

std::string Shape(const Matrix& matrix) {
  std::string shape = absl::StrCat(matrix.rows, " x ", matrix.cols);
  if (matrix.batch != 1) absl::StrAppend(&shape, " (batch ", matrix.batch, ")");
  return shape;
}

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace

absl::Status CheckMatrix(std::string_view name, const Matrix& matrix, bool with_data) {
  const std::string who(name);
  if (matrix.rows < 0 || matrix.cols < 0 || matrix.batch < 1) {
    return Invalid("matrix ", who, " has the impossible shape ", Shape(matrix));
  }
  if (IsEmpty(matrix)) return absl::OkStatus();
  if (matrix.row_stride < matrix.cols) {
    return Invalid("matrix ", who, " of ", Shape(matrix), " has row stride ", matrix.row_stride,
                   ", less than its columns");
  }
  const std::int64_t extent = (matrix.rows - 1) * matrix.row_stride + matrix.cols;
  if (matrix.batch > 1 && matrix.batch_stride < matrix.cols) {
    return Invalid("matrix ", who, " of ", Shape(matrix), " has batch stride ", matrix.batch_stride,
                   ", less than its columns");
  }
  // Matrices may lie side by side in wider rows, but not on top of each other.
  if (matrix.batch > 1 && matrix.batch_stride < extent &&
      (matrix.batch - 1) * matrix.batch_stride + matrix.cols > matrix.row_stride) {
    return Invalid("matrix ", who, " of ", Shape(matrix), " overlaps itself: batch stride ",
                   matrix.batch_stride, ", extent ", extent);
  }
  if (with_data && matrix.data == nullptr) return Invalid("matrix ", who, " has no data");
  return absl::OkStatus();
}

absl::Status CheckProduct(const Product& product, bool with_data) {
  const Matrix& a = product.a;
  const Matrix& b = product.b;
  const Matrix& d = product.d;
  WEFT_RETURN_IF_ERROR(CheckMatrix("A", a, with_data));
  WEFT_RETURN_IF_ERROR(CheckMatrix("B", b, with_data));
  WEFT_RETURN_IF_ERROR(CheckMatrix("D", d, with_data));
  const std::int64_t inner = product.transpose_b ? b.cols : b.rows;
  const std::int64_t width = product.transpose_b ? b.rows : b.cols;
  if (a.cols != inner || d.rows != a.rows || d.cols != width || b.batch != a.batch ||
      d.batch != a.batch) {
    return Invalid("a product of A ", Shape(a), " and ", product.transpose_b ? "transposed " : "",
                   "B ", Shape(b), " does not give D ", Shape(d));
  }
  if (b.dtype != a.dtype || d.dtype != a.dtype) {
    return Invalid("A, B and D of a product must share one dtype");
  }
  if (with_data && d.data != nullptr && (d.data == a.data || d.data == b.data)) {
    return Invalid("D of a product overlaps an operand");
  }
  if (product.symmetric && d.rows != d.cols) {
    return Invalid("a symmetric product needs a square D, not ", Shape(d));
  }
  if (product.beta == 0) return absl::OkStatus();
  const Matrix& c = product.c;
  WEFT_RETURN_IF_ERROR(CheckMatrix("C", c, with_data));
  if (c.rows != d.rows || c.cols != d.cols || c.batch != d.batch || c.dtype != d.dtype) {
    return Invalid("C ", Shape(c), " of a product must have the shape and dtype of D ", Shape(d));
  }
  if (with_data && d.data != nullptr && d.data == c.data) {
    return Invalid("D of a product overlaps C");
  }
  return absl::OkStatus();
}

std::string FormOf(const Product& product) {
  std::string key;
  for (const Matrix* matrix : {&product.a, &product.b, &product.c, &product.d}) {
    if (matrix == &product.c && product.beta == 0) continue;
    absl::StrAppend(&key, matrix->rows, ",", matrix->cols, ",", matrix->row_stride, ",",
                    matrix->batch, ",", matrix->batch > 1 ? matrix->batch_stride : 0, ";");
  }
  absl::StrAppend(&key, static_cast<int>(product.a.dtype), product.transpose_b ? "t" : "n",
                  product.symmetric ? "s" : "f",
                  absl::Hex(std::bit_cast<std::uint32_t>(product.alpha)), ",",
                  absl::Hex(std::bit_cast<std::uint32_t>(product.beta)));
  return key;
}

}  // namespace weft::device
