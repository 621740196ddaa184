// Packed, register-blocked product. Operands are copied into panels that the inner loop reads in
// order, which also makes every transposition and stride cost the same.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "train_gpt/ops.h"

// The inner loop is compiled per instruction set and chosen at load time. Sanitizer runtimes are
// not ready yet when the choice is made, so their builds use the baseline.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TRAIN_GPT_CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define TRAIN_GPT_CLONES
#endif

namespace train_gpt {
namespace {

constexpr std::int64_t kRows = 8;     // of C per inner loop
constexpr std::int64_t kVectors = 2;  // 64-byte vectors of C per row
constexpr std::int64_t kDepth = 384;  // products per pass: a panel of B stays in the first cache

template <typename T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(64)));
  static constexpr std::int64_t kWidth = 64 / sizeof(T);
};

// tile (kRows x kVectors vectors) = panel of A (depth x kRows) times panel of B.
template <typename T>
__attribute__((always_inline)) inline void Tile(std::int64_t depth, const T* __restrict a,
                                                const T* __restrict b, T* __restrict tile) {
  using Vector = typename VectorOf<T>::Type;
  const auto* vectors = reinterpret_cast<const Vector*>(b);
  Vector sum[kRows][kVectors] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    const Vector b0 = vectors[kVectors * k];
    const Vector b1 = vectors[kVectors * k + 1];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const T x = a[kRows * k + i];
      sum[i][0] += x * b0;
      sum[i][1] += x * b1;
    }
  }
  auto* out = reinterpret_cast<Vector*>(tile);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    out[kVectors * i] = sum[i][0];
    out[kVectors * i + 1] = sum[i][1];
  }
}

TRAIN_GPT_CLONES void RunTile(std::int64_t depth, const float* a, const float* b, float* tile) {
  Tile<float>(depth, a, b, tile);
}
TRAIN_GPT_CLONES void RunTile(std::int64_t depth, const double* a, const double* b, double* tile) {
  Tile<double>(depth, a, b, tile);
}

// Copies a `depth` x `count` block of a view, zero-padded to `width` columns, into depth x width.
template <typename T>
void Pack(std::int64_t depth, std::int64_t count, std::int64_t width, View<const T> from, T* to) {
  if (count < width) std::fill_n(to, depth * width, T{0});
  if (from.col_stride == 1) {
    for (std::int64_t k = 0; k < depth; ++k) {
      std::copy_n(from.data + k * from.row_stride, count, to + k * width);
    }
    return;
  }
  for (std::int64_t j = 0; j < count; ++j) {
    const T* column = from.data + j * from.col_stride;
    for (std::int64_t k = 0; k < depth; ++k) to[k * width + j] = column[k * from.row_stride];
  }
}

// A rank multiplies on its own thread for the whole run: its panels are allocated once.
template <typename T>
T* Panel(std::size_t count, std::vector<T>& storage) {
  const std::size_t slack = 64 / sizeof(T);
  if (storage.size() < count + slack) storage.resize(count + slack);
  const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
  return storage.data() + (64 - address % 64) % 64 / sizeof(T);
}

}  // namespace

template <typename T>
void MatMul(std::int64_t m, std::int64_t n, std::int64_t k, T alpha, View<const T> a,
            View<const T> b, bool accumulate, T* c, std::int64_t c_stride) {
  constexpr std::int64_t kCols = kVectors * VectorOf<T>::kWidth;
  thread_local std::vector<T> a_storage, b_storage;
  const std::int64_t panels = (n + kCols - 1) / kCols;
  T* a_panel = Panel(kRows * kDepth, a_storage);
  T* b_panels = Panel(static_cast<std::size_t>(panels * kCols * kDepth), b_storage);
  alignas(64) T tile[kRows * kCols];

  for (std::int64_t k0 = 0; k0 < k; k0 += kDepth) {
    const std::int64_t depth = std::min(kDepth, k - k0);
    const bool add = accumulate || k0 > 0;
    for (std::int64_t p = 0; p < panels; ++p) {
      const T* from = b.data + k0 * b.row_stride + p * kCols * b.col_stride;
      Pack<T>(depth, std::min(kCols, n - p * kCols), kCols, {from, b.row_stride, b.col_stride},
              b_panels + p * kCols * depth);
    }
    for (std::int64_t i0 = 0; i0 < m; i0 += kRows) {
      const std::int64_t rows = std::min(kRows, m - i0);
      Pack<T>(depth, rows, kRows,
              {a.data + i0 * a.row_stride + k0 * a.col_stride, a.col_stride, a.row_stride},
              a_panel);
      for (std::int64_t p = 0; p < panels; ++p) {
        RunTile(depth, a_panel, b_panels + p * kCols * depth, tile);
        const std::int64_t cols = std::min(kCols, n - p * kCols);
        for (std::int64_t i = 0; i < rows; ++i) {
          T* row = c + (i0 + i) * c_stride + p * kCols;
          const T* sums = tile + i * kCols;
          if (add) {
            for (std::int64_t j = 0; j < cols; ++j) row[j] += alpha * sums[j];
          } else {
            for (std::int64_t j = 0; j < cols; ++j) row[j] = alpha * sums[j];
          }
        }
      }
    }
  }
}

template void MatMul<float>(std::int64_t, std::int64_t, std::int64_t, float, View<const float>,
                            View<const float>, bool, float*, std::int64_t);
template void MatMul<double>(std::int64_t, std::int64_t, std::int64_t, double, View<const double>,
                             View<const double>, bool, double*, std::int64_t);

}  // namespace train_gpt
