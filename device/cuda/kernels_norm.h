// Kernels around norms. Squares are summed in double: each block its part, then whoever needs the
// sum adds the parts up in the same order.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/cuda/block_size.h"
#include "device/cuda/kernels_matrix.h"
#include "device/half.h"
#include "device/host_device.h"
#include "device/step_factors.h"

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

// The factor of a row whose squares add up to `sum`. Comparisons are written so that a NaN stays.
WEFT_HD inline double RowFactorOf(double sum, double eps, double gamma) {
  if (sum == 0) return 0;
  const double norm = std::sqrt(sum);
  return gamma / (norm < eps ? eps : norm);
}

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
    const double factor = RowFactorOf(sum, eps, gamma);
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

// As above for columns: a block per strip of them, whose threads share each column's rows.
template <typename From, typename To>
struct NormalizeColumns {
  static constexpr std::int64_t kStrip = 32;
  static constexpr std::int64_t kLanes = kBlockThreads / kStrip;
  static_assert(kBlockThreads * sizeof(double) <= kBlockSharedBytes);

  TypedMatrix<const From> x;
  float eps;
  float gamma;
  TypedMatrix<To> y;

  std::int64_t Blocks() const { return x.batch * PartsOf(x.cols, kStrip); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    const std::int64_t strips = PartsOf(x.cols, kStrip);
    const std::int64_t b = index / strips;
    const std::int64_t begin = index % strips * kStrip;
    const std::int64_t width = x.cols - begin < kStrip ? x.cols - begin : kStrip;
    auto* sums = block.template Shared<double>();
    block.ForEach(kBlockThreads, [&](std::int64_t thread) {
      const std::int64_t j = thread % kStrip;
      if (j >= width) return;
      double sum = 0;
      for (std::int64_t i = thread / kStrip; i < x.rows; i += kLanes) {
        const double value = Load(x.At(b, i, begin + j));
        sum += value * value;
      }
      sums[thread] = sum;
    });
    block.ForEach(width, [&](std::int64_t j) {
      double sum = 0;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += sums[lane * kStrip + j];
      // The first lane's place is read by this thread alone.
      sums[j] = RowFactorOf(sum, eps, gamma);
    });
    block.ForEach(x.rows * kStrip, [&](std::int64_t k) {
      const std::int64_t j = k % kStrip;
      if (j >= width) return;
      const float from = Load(x.At(b, k / kStrip, begin + j));
      Store(static_cast<float>(from * sums[j]), y.At(b, k / kStrip, begin + j));
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    x.Accesses(visit, false);
    y.Accesses(visit, true);
  }
};

// Math::ColumnSquares(): a block per strip of columns, whose threads share each column's rows.
struct SumColumnSquares {
  static constexpr std::int64_t kStrip = 32;
  static constexpr std::int64_t kLanes = kBlockThreads / kStrip;
  static_assert(kBlockThreads * sizeof(double) <= kBlockSharedBytes);

  TypedMatrix<const float> x;
  float unit;
  bool add;
  float* squares;

  std::int64_t Blocks() const { return PartsOf(x.cols, kStrip); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    const std::int64_t begin = index * kStrip;
    const std::int64_t width = x.cols - begin < kStrip ? x.cols - begin : kStrip;
    auto* sums = block.template Shared<double>();
    block.ForEach(kBlockThreads, [&](std::int64_t thread) {
      const std::int64_t j = thread % kStrip;
      if (j >= width) return;
      double sum = 0;
      for (std::int64_t i = thread / kStrip; i < x.rows; i += kLanes) {
        const double value = static_cast<double>(*x.At(0, i, begin + j)) / unit;
        sum += value * value;
      }
      sums[thread] = sum;
    });
    block.ForEach(width, [&](std::int64_t j) {
      double sum = add ? squares[begin + j] : 0;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += sums[lane * kStrip + j];
      squares[begin + j] = static_cast<float>(sum);
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
