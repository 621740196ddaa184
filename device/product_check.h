// Argument checks of products, and of matrices alone.
#pragma once

#include <string>
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

// Then D = beta * C, and libraries are not asked: they leave D undefined in places when alpha is 0.
inline bool HasNoTerms(const Product& product) { return IsEmpty(product.a) || product.alpha == 0; }

// Everything of a product but its pointers, as a key.
std::string FormOf(const Product& product);

}  // namespace weft::device
