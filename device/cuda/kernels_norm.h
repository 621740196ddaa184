// Kernels around norms. Squares are summed in double: each block its part, then whoever needs the
// sum adds the parts up in the same order.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/cuda/block_size.h"
#include "device/cuda/kernels_matrix.h"
#include "device/half.h"
#include "device/host_device.h"
#include "device/norm_factors.h"

namespace weft::device {

// sums[b * parts + p]: of the squares of the p-th part of matrix b.
template <typename T>
struct SquareSums {
  TypedMatrix<const T> x;
  std::int64_t parts;
  double* sums;

  std::int64_t Blocks() const { return x.batch * parts; }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    const std::int64_t b = index / parts;
    const std::int64_t count = x.rows * x.cols;
    const std::int64_t part = PartsOf(count, parts);
    const std::int64_t begin = index % parts * part;
    const std::int64_t left = count - begin;
    const bool dense = x.row_stride == x.cols;
    const double sum = block.Sum(left < part ? left : part, [&](std::int64_t k) {
      const std::int64_t i = begin + k;
      // Divisions cost more than the memory that is read.
      const double value = Load(dense ? x.At(b, 0, i) : x.At(b, i / x.cols, i % x.cols));
      return value * value;
    });
    block.ForEach(1, [&](std::int64_t) { sums[index] = sum; });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    x.Accesses(visit, false);
    VisitVector(visit, sums, x.batch * parts, true);
  }
};

// *norm = scale * the root of the sums' sum.
struct NormOfSums {
  const double* sums;
  std::int64_t parts;
  float scale;
  float* norm;

  std::int64_t Blocks() const { return 1; }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t) const {
    const double sum = block.Sum(parts, [&](std::int64_t i) { return sums[i]; });
    block.ForEach(1, [&](std::int64_t) { *norm = static_cast<float>(scale * std::sqrt(sum)); });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    VisitVector(visit, sums, parts, false);
    VisitVector(visit, norm, 1, true);
  }
};

// Y = gamma * X, each row over max(its norm, eps): a block per row.
template <typename From, typename To>
struct NormalizeRows {
  TypedMatrix<const From> x;
  float eps;
  float gamma;
  TypedMatrix<To> y;

  std::int64_t Blocks() const { return x.batch * x.rows; }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    const From* from = x.At(index / x.rows, index % x.rows, 0);
    To* to = y.At(index / x.rows, index % x.rows, 0);
    const double sum = block.Sum(x.cols, [&](std::int64_t j) {
      const double value = Load(from + j);
      return value * value;
    });
    const double factor = RowFactor(sum, eps, gamma);
    block.ForEach(x.cols, [&](std::int64_t j) {
      Store(static_cast<float>(Load(from + j) * factor), to + j);
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    x.Accesses(visit, false);
    y.Accesses(visit, true);
  }
};

// Columns in strips, of which a block's threads share each column's rows.
struct ColumnStrip {
  static constexpr std::int64_t kWidth = 32;
  static constexpr std::int64_t kLanes = kBlockThreads / kWidth;
  static_assert(kBlockThreads * sizeof(double) <= kBlockSharedBytes);

  std::int64_t begin;
  std::int64_t width;

  WEFT_HD static ColumnStrip Of(std::int64_t index, std::int64_t cols) {
    const std::int64_t begin = index * kWidth;
    return {begin, cols - begin < kWidth ? cols - begin : kWidth};
  }

  // Each thread's part of the sum of value(i, j)^2 over rows i, j from the strip's first column on.
  template <typename Block, typename Value>
  WEFT_HD void SumSquares(Block& block, std::int64_t rows, double* sums, Value value) const {
    block.ForEach(kBlockThreads, [&](std::int64_t thread) {
      const std::int64_t j = thread % kWidth;
      if (j >= width) return;
      double sum = 0;
      for (std::int64_t i = thread / kWidth; i < rows; i += kLanes) {
        const double each = value(i, j);
        sum += each * each;
      }
      sums[thread] = sum;
    });
  }
  // `start`, and a column's parts.
  WEFT_HD static double Total(const double* sums, std::int64_t j, double start) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) start += sums[lane * kWidth + j];
    return start;
  }
};

// As above for columns: a block per strip of them.
template <typename From, typename To>
struct NormalizeColumns {
  TypedMatrix<const From> x;
  float eps;
  float gamma;
  TypedMatrix<To> y;

  std::int64_t Blocks() const { return x.batch * PartsOf(x.cols, ColumnStrip::kWidth); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    const std::int64_t strips = PartsOf(x.cols, ColumnStrip::kWidth);
    const std::int64_t b = index / strips;
    const ColumnStrip strip = ColumnStrip::Of(index % strips, x.cols);
    auto* sums = block.template Shared<double>();
    strip.SumSquares(block, x.rows, sums, [&](std::int64_t i, std::int64_t j) -> double {
      return Load(x.At(b, i, strip.begin + j));
    });
    block.ForEach(strip.width, [&](std::int64_t j) {
      // The first lane's place is read by this thread alone.
      sums[j] = RowFactor(ColumnStrip::Total(sums, j, 0), eps, gamma);
    });
    block.ForEach(x.rows * ColumnStrip::kWidth, [&](std::int64_t k) {
      const std::int64_t i = k / ColumnStrip::kWidth, j = k % ColumnStrip::kWidth;
      if (j >= strip.width) return;
      const float from = Load(x.At(b, i, strip.begin + j));
      Store(static_cast<float>(from * sums[j]), y.At(b, i, strip.begin + j));
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    x.Accesses(visit, false);
    y.Accesses(visit, true);
  }
};

// Math::ColumnSquares(): a block per strip of columns.
struct SumColumnSquares {
  TypedMatrix<const float> x;
  float unit;
  bool add;
  float* squares;

  std::int64_t Blocks() const { return PartsOf(x.cols, ColumnStrip::kWidth); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    const ColumnStrip strip = ColumnStrip::Of(index, x.cols);
    auto* sums = block.template Shared<double>();
    strip.SumSquares(block, x.rows, sums, [&](std::int64_t i, std::int64_t j) -> double {
      return static_cast<double>(*x.At(0, i, strip.begin + j)) / unit;
    });
    block.ForEach(strip.width, [&](std::int64_t j) {
      float& square = squares[strip.begin + j];
      square = static_cast<float>(ColumnStrip::Total(sums, j, add ? square : 0));
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    x.Accesses(visit, false);
    if (add) VisitVector(visit, squares, x.cols, false);
    VisitVector(visit, squares, x.cols, true);
  }
};

// Math::DivideColumns(): a block per row.
struct DivideByColumnNorms {
  TypedMatrix<const float> x;
  const float* squares;
  float unit;
  float eps;
  float gamma;
  TypedMatrix<float> y;

  std::int64_t Blocks() const { return x.rows; }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    block.ForEach(x.cols, [&](std::int64_t j) {
      const double factor = ColumnFactor(squares[j], unit, eps, gamma);
      *y.At(0, index, j) = static_cast<float>(*x.At(0, index, j) * factor);
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    x.Accesses(visit, false);
    VisitVector(visit, squares, x.cols, false);
    y.Accesses(visit, true);
  }
};

}  // namespace weft::device
