#include "device/host/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "device/half.h"
#include "device/norm_factors.h"

// Resolvers of cloned functions run before a sanitizer's runtime is up.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WEFT_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define WEFT_VECTOR_CLONES
#endif

#define WEFT_FOR_EACH_PAIR(Define)                                                \
  Define(float, float) Define(float, BF16) Define(float, F16) Define(BF16, float) \
      Define(BF16, BF16) Define(BF16, F16) Define(F16, float) Define(F16, BF16) Define(F16, F16)

namespace weft::device {
namespace {

constexpr std::int64_t kTile = 16;

template <typename From, typename To>
[[gnu::always_inline]] inline void ScaleRow(const From* x, std::int64_t count, double factor,
                                            To* y) {
  for (std::int64_t i = 0; i < count; ++i) {
    Store(static_cast<float>(Load(x + i) * factor), y + i);
  }
}

template <typename From, typename To>
[[gnu::always_inline]] inline void ConvertRow(const From* x, std::int64_t count, To* y) {
  for (std::int64_t i = 0; i < count; ++i) Store(Load(x + i), y + i);
}

// Applies `row(from, count, float* to)` to tiles of X and stores their transposes.
template <typename From, typename To, typename Row>
[[gnu::always_inline]] inline void TransposeTiles(const From* x, std::int64_t rows,
                                                  std::int64_t cols, std::int64_t x_stride, To* y,
                                                  std::int64_t y_stride, Row row) {
  float tile[kTile][kTile] = {};
  for (std::int64_t i0 = 0; i0 < rows; i0 += kTile) {
    const std::int64_t height = std::min(kTile, rows - i0);
    for (std::int64_t j0 = 0; j0 < cols; j0 += kTile) {
      const std::int64_t width = std::min(kTile, cols - j0);
      for (std::int64_t i = 0; i < height; ++i) {
        row(x + (i0 + i) * x_stride + j0, width, tile[i]);
      }
      for (std::int64_t j = 0; j < width; ++j) {
        To* to = y + (j0 + j) * y_stride + i0;
        for (std::int64_t i = 0; i < height; ++i) Store(tile[i][j], to + i);
      }
    }
  }
}

// Transposes an 8 x 8 block of 16-bit elements by three rounds of interleaving.
[[gnu::always_inline]] inline void TransposeBlock(const std::uint16_t* from,
                                                  std::int64_t from_stride, std::uint16_t* to,
                                                  std::int64_t to_stride) {
  using Vector [[gnu::vector_size(16)]] = std::uint16_t;
  Vector a[8];
  Vector b[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&a[i], from + i * from_stride, sizeof(Vector));
  Vector* source = a;
  Vector* target = b;
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t i = 0; i < 4; ++i) {
      target[2 * i] = __builtin_shufflevector(source[i], source[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      target[2 * i + 1] =
          __builtin_shufflevector(source[i], source[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::swap(source, target);
  }
  for (int i = 0; i < 8; ++i) std::memcpy(to + i * to_stride, &source[i], sizeof(Vector));
}

// As above for 4 x 4 blocks of 32-bit elements, twice in each direction.
[[gnu::always_inline]] inline void TransposeBlock(const float* from, std::int64_t from_stride,
                                                  float* to, std::int64_t to_stride) {
  using Vector [[gnu::vector_size(16)]] = float;
  for (int bi = 0; bi < 8; bi += 4) {
    for (int bj = 0; bj < 8; bj += 4) {
      Vector a[4];
      for (int i = 0; i < 4; ++i) {
        std::memcpy(&a[i], from + (bi + i) * from_stride + bj, sizeof(Vector));
      }
      const Vector t0 = __builtin_shufflevector(a[0], a[2], 0, 4, 1, 5);
      const Vector t1 = __builtin_shufflevector(a[0], a[2], 2, 6, 3, 7);
      const Vector t2 = __builtin_shufflevector(a[1], a[3], 0, 4, 1, 5);
      const Vector t3 = __builtin_shufflevector(a[1], a[3], 2, 6, 3, 7);
      const Vector out[4] = {
          __builtin_shufflevector(t0, t2, 0, 4, 1, 5), __builtin_shufflevector(t0, t2, 2, 6, 3, 7),
          __builtin_shufflevector(t1, t3, 0, 4, 1, 5), __builtin_shufflevector(t1, t3, 2, 6, 3, 7)};
      for (int j = 0; j < 4; ++j) {
        std::memcpy(to + (bj + j) * to_stride + bi, &out[j], sizeof(Vector));
      }
    }
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types.
// target_clones does not take templates: one plain function per combination of types.
#define WEFT_DEFINE_SUMS(T)                                                                \
  WEFT_VECTOR_CLONES double SumOfSquares(const T* u, std::int64_t rows, std::int64_t cols, \
                                         std::int64_t row_stride) {                        \
    /* Sixteen chains, whatever the vector width, fix the order of the additions. */       \
    double lanes[kTile] = {};                                                              \
    for (std::int64_t i = 0; i < rows; ++i) {                                              \
      const T* row = u + i * row_stride;                                                   \
      std::int64_t j = 0;                                                                  \
      for (; j + kTile <= cols; j += kTile) {                                              \
        for (std::int64_t lane = 0; lane < kTile; ++lane) {                                \
          const double value = Load(row + j + lane);                                       \
          lanes[lane] += value * value;                                                    \
        }                                                                                  \
      }                                                                                    \
      for (; j < cols; ++j) {                                                              \
        const double value = Load(row + j);                                                \
        lanes[j % kTile] += value * value;                                                 \
      }                                                                                    \
    }                                                                                      \
    double sum = 0;                                                                        \
    for (const double lane : lanes) sum += lane;                                           \
    return sum;                                                                            \
  }                                                                                        \
  WEFT_VECTOR_CLONES void AddClones(const T* x, std::int64_t count, T* y) {                \
    for (std::int64_t i = 0; i < count; ++i) Store(Load(x + i) + Load(y + i), y + i);      \
  }
WEFT_DEFINE_SUMS(float)
WEFT_DEFINE_SUMS(BF16)
WEFT_DEFINE_SUMS(F16)
#undef WEFT_DEFINE_SUMS

#define WEFT_DEFINE_CONVERSIONS(From, To)                                                        \
  WEFT_VECTOR_CLONES void ScaleIntoClones(const From* x, std::int64_t rows, std::int64_t cols,   \
                                          std::int64_t x_stride, bool transpose, double factor,  \
                                          To* y, std::int64_t y_stride) {                        \
    if (!transpose) {                                                                            \
      for (std::int64_t i = 0; i < rows; ++i) {                                                  \
        ScaleRow(x + i * x_stride, cols, factor, y + i * y_stride);                              \
      }                                                                                          \
      return;                                                                                    \
    }                                                                                            \
    const auto row = [factor](const From* from, std::int64_t count, float* to)                   \
        __attribute__((always_inline)) {                                                         \
      ScaleRow(from, count, factor, to);                                                         \
    };                                                                                           \
    TransposeTiles(x, rows, cols, x_stride, y, y_stride, row);                                   \
  }                                                                                              \
  WEFT_VECTOR_CLONES void ConvertIntoClones(const From* x, std::int64_t rows, std::int64_t cols, \
                                            std::int64_t x_stride, bool transpose, To* y,        \
                                            std::int64_t y_stride) {                             \
    if (!transpose) {                                                                            \
      for (std::int64_t i = 0; i < rows; ++i) {                                                  \
        ConvertRow(x + i * x_stride, cols, y + i * y_stride);                                    \
      }                                                                                          \
      return;                                                                                    \
    }                                                                                            \
    const auto row =                                                                             \
        [](const From* from, std::int64_t count, float* to) __attribute__((always_inline)) {     \
      ConvertRow(from, count, to);                                                               \
    };                                                                                           \
    TransposeTiles(x, rows, cols, x_stride, y, y_stride, row);                                   \
  }

// Columns go in blocks whose sums fit on the stack.
#define WEFT_DEFINE_ROW_NORM(From, To)                                                             \
  WEFT_VECTOR_CLONES void ColumnNormClones(const From* x, std::int64_t rows, std::int64_t cols,    \
                                           std::int64_t x_stride, double eps, double gamma, To* y, \
                                           std::int64_t y_stride) {                                \
    constexpr std::int64_t kBlock = 256;                                                           \
    for (std::int64_t j0 = 0; j0 < cols; j0 += kBlock) {                                           \
      const std::int64_t width = std::min(kBlock, cols - j0);                                      \
      double factors[kBlock] = {};                                                                 \
      for (std::int64_t i = 0; i < rows; ++i) {                                                    \
        const From* row = x + i * x_stride + j0;                                                   \
        for (std::int64_t j = 0; j < width; ++j) {                                                 \
          const double value = Load(row + j);                                                      \
          factors[j] += value * value;                                                             \
        }                                                                                          \
      }                                                                                            \
      for (std::int64_t j = 0; j < width; ++j) factors[j] = RowFactor(factors[j], eps, gamma);     \
      for (std::int64_t i = 0; i < rows; ++i) {                                                    \
        const From* row = x + i * x_stride + j0;                                                   \
        To* to = y + i * y_stride + j0;                                                            \
        for (std::int64_t j = 0; j < width; ++j) {                                                 \
          Store(static_cast<float>(Load(row + j) * factors[j]), to + j);                           \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }
WEFT_FOR_EACH_PAIR(WEFT_DEFINE_ROW_NORM)
#undef WEFT_DEFINE_ROW_NORM

WEFT_VECTOR_CLONES void ColumnSquaresClones(const float* x, std::int64_t rows, std::int64_t cols,
                                            std::int64_t x_stride, double unit, bool add,
                                            float* squares) {
  constexpr std::int64_t kBlock = 256;
  for (std::int64_t j0 = 0; j0 < cols; j0 += kBlock) {
    const std::int64_t width = std::min(kBlock, cols - j0);
    double sums[kBlock] = {};
    for (std::int64_t j = 0; add && j < width; ++j) sums[j] = squares[j0 + j];
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        const double value = x[i * x_stride + j0 + j] / unit;
        sums[j] += value * value;
      }
    }
    for (std::int64_t j = 0; j < width; ++j) squares[j0 + j] = static_cast<float>(sums[j]);
  }
}

WEFT_VECTOR_CLONES void DivideColumnsClones(const float* x, std::int64_t rows, std::int64_t cols,
                                            std::int64_t x_stride, Math::ColumnNorms norms,
                                            float* y, std::int64_t y_stride) {
  constexpr std::int64_t kBlock = 256;
  for (std::int64_t j0 = 0; j0 < cols; j0 += kBlock) {
    const std::int64_t width = std::min(kBlock, cols - j0);
    double factors[kBlock] = {};
    for (std::int64_t j = 0; j < width; ++j) {
      factors[j] = ColumnFactor(norms.squares[j0 + j], norms.unit, norms.eps, norms.gamma);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        y[i * y_stride + j0 + j] = static_cast<float>(x[i * x_stride + j0 + j] * factors[j]);
      }
    }
  }
}

WEFT_FOR_EACH_PAIR(WEFT_DEFINE_CONVERSIONS)
#undef WEFT_DEFINE_CONVERSIONS

#define WEFT_DEFINE_MOMENTUM(G)                                                               \
  WEFT_VECTOR_CLONES void MomentumClones(std::int64_t count, const G* gradient, float fresh,  \
                                         float mu, bool nesterov, float* __restrict momentum, \
                                         float* __restrict update) {                          \
    if (nesterov) {                                                                           \
      for (std::int64_t i = 0; i < count; ++i) {                                              \
        const float part = fresh * Load(gradient + i);                                        \
        const float moved = mu * momentum[i] + part;                                          \
        momentum[i] = moved;                                                                  \
        update[i] = mu * moved + part;                                                        \
      }                                                                                       \
    } else {                                                                                  \
      for (std::int64_t i = 0; i < count; ++i) {                                              \
        const float moved = mu * momentum[i] + fresh * Load(gradient + i);                    \
        momentum[i] = moved;                                                                  \
        update[i] = moved;                                                                    \
      }                                                                                       \
    }                                                                                         \
  }
WEFT_DEFINE_MOMENTUM(float)
WEFT_DEFINE_MOMENTUM(BF16)
WEFT_DEFINE_MOMENTUM(F16)
#undef WEFT_DEFINE_MOMENTUM

#define WEFT_DEFINE_APPLY(W)                                                                     \
  WEFT_VECTOR_CLONES void ApplyClones(std::int64_t count, float keep, float step,                \
                                      const float* __restrict direction, W* __restrict weight) { \
    for (std::int64_t i = 0; i < count; ++i) {                                                   \
      Store(Load(weight + i) * keep - step * direction[i], weight + i);                          \
    }                                                                                            \
  }
WEFT_DEFINE_APPLY(float)
WEFT_DEFINE_APPLY(BF16)
WEFT_DEFINE_APPLY(F16)
#undef WEFT_DEFINE_APPLY

#define WEFT_DEFINE_ADAMW(G, W)                                                                 \
  WEFT_VECTOR_CLONES void AdamWClones(std::int64_t count, const G* __restrict gradient,         \
                                      AdamWFactors f, float* __restrict m, float* __restrict v, \
                                      W* __restrict weight) {                                   \
    for (std::int64_t i = 0; i < count; ++i) {                                                  \
      const float g = f.gradient_scale * Load(gradient + i);                                    \
      m[i] = f.beta1 * m[i] + f.rest1 * g;                                                      \
      v[i] = f.beta2 * v[i] + f.rest2 * g * g;                                                  \
      const float denominator = std::sqrt(v[i]) / f.root + f.eps;                               \
      Store(Load(weight + i) * f.keep - f.step * (m[i] / denominator), weight + i);             \
    }                                                                                           \
  }
WEFT_FOR_EACH_PAIR(WEFT_DEFINE_ADAMW)
#undef WEFT_DEFINE_ADAMW
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace

template <typename T>
double FrobeniusNorm(const T* u, std::int64_t rows, std::int64_t cols, std::int64_t row_stride) {
  return std::sqrt(SumOfSquares(u, rows, cols, row_stride));
}

template <typename From, typename To>
void RowNormInto(const From* x, std::int64_t rows, std::int64_t cols, std::int64_t x_stride,
                 bool columns, double eps, double gamma, To* y, std::int64_t y_stride) {
  if (columns) {
    ColumnNormClones(x, rows, cols, x_stride, eps, gamma, y, y_stride);
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const From* row = x + i * x_stride;
    const double factor = RowFactor(SumOfSquares(row, 1, cols, x_stride), eps, gamma);
    ScaleIntoClones(row, 1, cols, x_stride, false, factor, y + i * y_stride, y_stride);
  }
}

void ColumnSquaresInto(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t x_stride,
                       double unit, bool add, float* squares) {
  ColumnSquaresClones(x, rows, cols, x_stride, unit, add, squares);
}

void DivideColumnsInto(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t x_stride,
                       const Math::ColumnNorms& norms, float* y, std::int64_t y_stride) {
  DivideColumnsClones(x, rows, cols, x_stride, norms, y, y_stride);
}

template <typename T>
void AddInto(const T* x, std::int64_t count, T* y) {
  AddClones(x, count, y);
}

template <typename From, typename To>
void ScaleInto(const From* x, std::int64_t rows, std::int64_t cols, std::int64_t x_stride,
               bool transpose, double factor, To* y, std::int64_t y_stride) {
  ScaleIntoClones(x, rows, cols, x_stride, transpose, factor, y, y_stride);
}

template <typename From, typename To>
void ConvertInto(const From* x, std::int64_t rows, std::int64_t cols, std::int64_t x_stride,
                 bool transpose, To* y, std::int64_t y_stride) {
  ConvertIntoClones(x, rows, cols, x_stride, transpose, y, y_stride);
}

template <typename T>
void MirrorLowerRows(T* d, std::int64_t row_begin, std::int64_t row_end, std::int64_t row_stride) {
  constexpr std::int64_t kBlock = 8;
  for (std::int64_t i0 = row_begin; i0 < row_end; i0 += kBlock) {
    const std::int64_t height = std::min(kBlock, row_end - i0);
    std::int64_t j0 = 0;
    if (height == kBlock) {
      for (; j0 + kBlock <= i0; j0 += kBlock) {
        TransposeBlock(d + i0 * row_stride + j0, row_stride, d + j0 * row_stride + i0, row_stride);
      }
    }
    for (std::int64_t i = i0; i < i0 + height; ++i) {
      for (std::int64_t j = j0; j < i; ++j) d[j * row_stride + i] = d[i * row_stride + j];
    }
  }
}

template <typename T>
void ShiftDiagonalInto(const T* x, std::int64_t n, std::int64_t x_stride, float shift, T* y,
                       std::int64_t y_stride) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T* from = x + i * x_stride;
    T* to = y + i * y_stride;
    std::copy_n(from, n, to);
    Store(Load(from + i) + shift, to + i);
  }
}

template <typename G>
void MomentumStep(std::int64_t count, const G* gradient, float scale, float mu, bool nesterov,
                  float* momentum, float* update) {
  MomentumClones(count, gradient, (1 - mu) * scale, mu, nesterov, momentum, update);
}

template <typename W>
void ApplyStep(std::int64_t count, float decay, float step, const float* direction, W* weight) {
  ApplyClones(count, 1 - decay, step, direction, weight);
}

template <typename G, typename W>
void AdamWStep(std::int64_t count, const G* gradient, const AdamWFactors& factors, float* m,
               float* v, W* weight) {
  AdamWClones(count, gradient, factors, m, v, weight);
}

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types.
#define WEFT_INSTANTIATE(A, B)                                                                  \
  template void ScaleInto(const A*, std::int64_t, std::int64_t, std::int64_t, bool, double, B*, \
                          std::int64_t);                                                        \
  template void ConvertInto(const A*, std::int64_t, std::int64_t, std::int64_t, bool, B*,       \
                            std::int64_t);                                                      \
  template void RowNormInto(const A*, std::int64_t, std::int64_t, std::int64_t, bool, double,   \
                            double, B*, std::int64_t);                                          \
  template void AdamWStep(std::int64_t, const A*, const AdamWFactors&, float*, float*, B*);
WEFT_FOR_EACH_PAIR(WEFT_INSTANTIATE)
#undef WEFT_INSTANTIATE

#define WEFT_INSTANTIATE(T)                                                                       \
  template double FrobeniusNorm(const T*, std::int64_t, std::int64_t, std::int64_t);              \
  template void AddInto(const T*, std::int64_t, T*);                                              \
  template void ShiftDiagonalInto(const T*, std::int64_t, std::int64_t, float, T*, std::int64_t); \
  template void MomentumStep(std::int64_t, const T*, float, float, bool, float*, float*);         \
  template void ApplyStep(std::int64_t, float, float, const float*, T*);
WEFT_INSTANTIATE(float)
WEFT_INSTANTIATE(BF16)
WEFT_INSTANTIATE(F16)
#undef WEFT_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

template void MirrorLowerRows(float*, std::int64_t, std::int64_t, std::int64_t);
template void MirrorLowerRows(std::uint16_t*, std::int64_t, std::int64_t, std::int64_t);

}  // namespace weft::device
