#include "tools/reference/matmul.h"

#include <algorithm>
#include <thread>

namespace weft::reference {
namespace {

// A tile of C of kTileRows x kTileCols stays in registers while it sums over a block of k; B is
// repacked so that the tile reads it contiguously.
constexpr int kTileRows = 4;
constexpr int kVector = 4;
constexpr int kVectors = 3;
constexpr int kTileCols = kVector * kVectors;
constexpr std::int64_t kBlockDepth = 256;
constexpr std::int64_t kBlockCols = 40 * kTileCols;

typedef double Vector __attribute__((vector_size(kVector * sizeof(double)), aligned(8)));

// C[0:kTileRows, 0:kTileCols] += A[0:kTileRows, 0:depth] * B, B packed.
[[gnu::always_inline]] inline void Tile(std::int64_t depth, const double* a, std::int64_t a_stride,
                                        const double* b, double* c, std::int64_t c_stride) {
  Vector sum[kTileRows][kVectors] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    const Vector* row = reinterpret_cast<const Vector*>(b + p * kTileCols);
    for (int i = 0; i < kTileRows; ++i) {
      const double factor = a[i * a_stride + p];
      for (int j = 0; j < kVectors; ++j) sum[i][j] += factor * row[j];
    }
  }
  for (int i = 0; i < kTileRows; ++i) {
    Vector* row = reinterpret_cast<Vector*>(c + i * c_stride);
    for (int j = 0; j < kVectors; ++j) row[j] += sum[i][j];
  }
}

using TileFunction = void (*)(std::int64_t, const double*, std::int64_t, const double*, double*,
                              std::int64_t);

void PortableTile(std::int64_t depth, const double* a, std::int64_t a_stride, const double* b,
                  double* c, std::int64_t c_stride) {
  Tile(depth, a, a_stride, b, c, c_stride);
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void Avx2Tile(std::int64_t depth, const double* a,
                                          std::int64_t a_stride, const double* b, double* c,
                                          std::int64_t c_stride) {
  Tile(depth, a, a_stride, b, c, c_stride);
}
#endif

TileFunction ChooseTile() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Avx2Tile;
#endif
  return PortableTile;
}

// Rows [first, last) of C = A * B.
void MultiplyRows(const double* a, const double* b, double* c, std::int64_t first,
                  std::int64_t last, std::int64_t k, std::int64_t n) {
  static const TileFunction tile = ChooseTile();
  std::vector<double> packed(kBlockDepth * kBlockCols);
  std::vector<double> edge_a(kTileRows * kBlockDepth);
  std::vector<double> edge_c(kTileRows * kTileCols);
  for (std::int64_t col = 0; col < n; col += kBlockCols) {
    const std::int64_t cols = std::min(kBlockCols, n - col);
    for (std::int64_t deep = 0; deep < k; deep += kBlockDepth) {
      const std::int64_t depth = std::min(kBlockDepth, k - deep);
      // Strips of kTileCols columns, filled up with zeros.
      for (std::int64_t strip = 0; strip < cols; strip += kTileCols) {
        double* to = packed.data() + strip * depth;
        for (std::int64_t p = 0; p < depth; ++p) {
          const double* from = b + (deep + p) * n + col + strip;
          for (int j = 0; j < kTileCols; ++j) {
            to[p * kTileCols + j] = strip + j < cols ? from[j] : 0.0;
          }
        }
      }
      for (std::int64_t row = first; row < last; row += kTileRows) {
        const std::int64_t rows = std::min<std::int64_t>(kTileRows, last - row);
        const double* a_tile = a + row * k + deep;
        std::int64_t a_stride = k;
        if (rows < kTileRows) {
          std::fill(edge_a.begin(), edge_a.end(), 0.0);
          for (std::int64_t i = 0; i < rows; ++i) {
            std::copy_n(a_tile + i * k, depth, edge_a.data() + i * kBlockDepth);
          }
          a_tile = edge_a.data();
          a_stride = kBlockDepth;
        }
        for (std::int64_t strip = 0; strip < cols; strip += kTileCols) {
          double* c_tile = c + row * n + col + strip;
          if (rows == kTileRows && strip + kTileCols <= cols) {
            tile(depth, a_tile, a_stride, packed.data() + strip * depth, c_tile, n);
            continue;
          }
          std::fill(edge_c.begin(), edge_c.end(), 0.0);
          tile(depth, a_tile, a_stride, packed.data() + strip * depth, edge_c.data(), kTileCols);
          for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < std::min<std::int64_t>(kTileCols, cols - strip); ++j) {
              c_tile[i * n + j] += edge_c[i * kTileCols + j];
            }
          }
        }
      }
    }
  }
}

}  // namespace

std::vector<double> MatMul(const std::vector<double>& a, const std::vector<double>& b,
                           std::int64_t m, std::int64_t k, std::int64_t n, int threads) {
  std::vector<double> c(m * n, 0.0);
  const std::int64_t share = (m + threads - 1) / threads;
  std::vector<std::thread> others;
  for (int t = 1; t < threads && t * share < m; ++t) {
    others.emplace_back([&, t] {
      MultiplyRows(a.data(), b.data(), c.data(), t * share, std::min(m, (t + 1) * share), k, n);
    });
  }
  MultiplyRows(a.data(), b.data(), c.data(), 0, std::min(m, share), k, n);
  for (std::thread& other : others) other.join();
  return c;
}

std::vector<double> Transpose(const std::vector<double>& a, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kBlock = 16;
  std::vector<double> result(a.size());
  for (std::int64_t i = 0; i < rows; i += kBlock) {
    for (std::int64_t j = 0; j < cols; j += kBlock) {
      for (std::int64_t r = i; r < std::min(rows, i + kBlock); ++r) {
        for (std::int64_t s = j; s < std::min(cols, j + kBlock); ++s) {
          result[s * rows + r] = a[r * cols + s];
        }
      }
    }
  }
  return result;
}

}  // namespace weft::reference
