// Argument checks of Math, shared by every entry of HostMath.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "weft/math.h"

namespace weft::device {

// Shape, strides and batch make sense for the matrix that messages call `name`. The data pointer
// must be set when `with_data` and the matrix is not empty.
absl::Status CheckMatrix(std::string_view name, const Matrix& matrix, bool with_data);

// Every rule stated at Product. Pointers are looked at only when `with_data`.
absl::Status CheckProduct(const Product& product, bool with_data);

inline bool IsEmpty(const Matrix& matrix) { return matrix.rows == 0 || matrix.cols == 0; }

}  // namespace weft::device
