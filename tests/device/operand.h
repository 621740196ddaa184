// Matrices for tests: storage in any dtype, strided and batched, with the exact float64 value
// of each stored element at hand.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/halves.h"
#include "weft/math.h"

namespace weft::testing {

class Operand {
 public:
  // `pad` unused elements end each row, `gap` more end each matrix; both hold a sentinel.
  Operand(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t batch = 1,
          std::int64_t pad = 0, std::int64_t gap = 0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        batch_(batch),
        row_stride_(cols + pad),
        batch_stride_(rows * (cols + pad) + gap),
        bytes_(static_cast<std::size_t>(batch * batch_stride_) * SizeOf(dtype)) {
    for (std::int64_t i = 0; i < batch * batch_stride_; ++i) Put(i, kSentinel);
  }

  Matrix matrix() {
    return {bytes_.data(), dtype_, rows_, cols_, row_stride_, batch_, batch_stride_};
  }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t batch() const { return batch_; }
  DType dtype() const { return dtype_; }
  const std::vector<unsigned char>& bytes() const { return bytes_; }

  double at(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return Take(b * batch_stride_ + i * row_stride_ + j);
  }
  void set(std::int64_t b, std::int64_t i, std::int64_t j, double value) {
    Put(b * batch_stride_ + i * row_stride_ + j, value);
  }

  void FillNormal(std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    for (std::int64_t b = 0; b < batch_; ++b) {
      for (std::int64_t i = 0; i < rows_; ++i) {
        for (std::int64_t j = 0; j < cols_; ++j) set(b, i, j, normal(random));
      }
    }
  }

  // Every element outside the matrices still holds the sentinel.
  bool PaddingIntact() const {
    for (std::int64_t k = 0; k < batch_ * batch_stride_; ++k) {
      const std::int64_t inside = k % batch_stride_;
      const bool padding = inside >= rows_ * row_stride_ || inside % row_stride_ >= cols_;
      if (padding && Take(k) != kSentinel) return false;
    }
    return true;
  }

 private:
  static constexpr double kSentinel = 16384.0;

  double Take(std::int64_t k) const {
    switch (dtype_) {
      case DType::kF32:
        return reinterpret_cast<const float*>(bytes_.data())[k];
      case DType::kBF16:
      case DType::kF16:
        return HalfValue(dtype_, reinterpret_cast<const std::uint16_t*>(bytes_.data())[k]);
    }
    return NAN;
  }
  void Put(std::int64_t k, double value) {
    switch (dtype_) {
      case DType::kF32:
        reinterpret_cast<float*>(bytes_.data())[k] = static_cast<float>(value);
        return;
      case DType::kBF16:
      case DType::kF16:
        reinterpret_cast<std::uint16_t*>(bytes_.data())[k] = HalfBits(dtype_, value);
        return;
    }
  }

  DType dtype_;
  std::int64_t rows_, cols_, batch_, row_stride_, batch_stride_;
  std::vector<unsigned char> bytes_;
};

// alpha * A * op(B) + beta * C of one element, and the sum of the magnitudes of its terms: the
// scale that rounding errors are measured against.
struct Element {
  double value = 0;
  double magnitude = 0;
};
inline Element ProductElement(const Operand& a, const Operand& b, bool transpose_b, double alpha,
                              double beta, const Operand* c, std::int64_t batch, std::int64_t i,
                              std::int64_t j) {
  Element element;
  for (std::int64_t k = 0; k < a.cols(); ++k) {
    const double term =
        alpha * a.at(batch, i, k) * (transpose_b ? b.at(batch, j, k) : b.at(batch, k, j));
    element.value += term;
    element.magnitude += std::abs(term);
  }
  if (beta != 0) {
    const double term = beta * c->at(batch, i, j);
    element.value += term;
    element.magnitude += std::abs(term);
  }
  return element;
}

}  // namespace weft::testing
