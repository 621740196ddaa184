// The element-wise loops behind HostMath, on host pointers. Serial and in a fixed order, so equal
// arguments give equal bits on every machine. Elements are float, BF16 or F16 (device/half.h).
#pragma once

#include <cstdint>

#include "device/step_factors.h"
#include "weft/math.h"

namespace weft::device {

// ||U||_F of a rows x cols matrix. The squares are summed in double: no input overflows or
// underflows there.
template <typename T>
double FrobeniusNorm(const T* u, std::int64_t rows, std::int64_t cols, std::int64_t row_stride);

// Y = gamma * X, each row of X over max(its norm, eps), or each column of it. Sums and factors are
// double; a row of zeros gives zeros, one with a NaN gives NaNs. Y may be X.
template <typename From, typename To>
void RowNormInto(const From* x, std::int64_t rows, std::int64_t cols, std::int64_t x_stride,
                 bool columns, double eps, double gamma, To* y, std::int64_t y_stride);

// Math::ColumnSquares() and Math::DivideColumns().
void ColumnSquaresInto(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t x_stride,
                       double unit, bool add, float* squares);
void DivideColumnsInto(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t x_stride,
                       const Math::ColumnNorms& norms, float* y, std::int64_t y_stride);

// Y = X + Y.
template <typename T>
void AddInto(const T* x, std::int64_t count, T* y);

// Y = factor * op(X), op(X) = X^T when `transpose`; X is rows x cols. The product is formed in
// double, so that a factor outside fp32's range (one over a tiny norm) works.
template <typename From, typename To>
void ScaleInto(const From* x, std::int64_t rows, std::int64_t cols, std::int64_t x_stride,
               bool transpose, double factor, To* y, std::int64_t y_stride);

// Y = op(X).
template <typename From, typename To>
void ConvertInto(const From* x, std::int64_t rows, std::int64_t cols, std::int64_t x_stride,
                 bool transpose, To* y, std::int64_t y_stride);

// Y = X + shift * I, n x n.
template <typename T>
void ShiftDiagonalInto(const T* x, std::int64_t n, std::int64_t x_stride, float shift, T* y,
                       std::int64_t y_stride);

// D[j][i] = D[i][j] for row_begin <= i < row_end and j < i, in an n x n matrix. Of 16-bit types
// only the bits are moved, as std::uint16_t.
template <typename T>
void MirrorLowerRows(T* d, std::int64_t row_begin, std::int64_t row_end, std::int64_t row_stride);

// Formulas: Math::Momentum, Math::Apply.
template <typename G>
void MomentumStep(std::int64_t count, const G* gradient, float scale, float mu, bool nesterov,
                  float* momentum, float* update);
template <typename W>
void ApplyStep(std::int64_t count, float decay, float step, const float* direction, W* weight);

// Math::AdamW with the scalars of step t already worked out, in double, by the caller.
template <typename G, typename W>
void AdamWStep(std::int64_t count, const G* gradient, const AdamWFactors& factors, float* m,
               float* v, W* weight);

}  // namespace weft::device
