#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "tests/fakes/cublaslt/problem.h"

namespace weft::fakes::cublaslt {
namespace {

template <typename T>
float Load(const void* data, std::int64_t index) {
  T x;
  std::memcpy(&x, static_cast<const char*>(data) + index * static_cast<std::int64_t>(sizeof x),
              sizeof x);
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(x);
  } else {
    return x;
  }
}

template <typename T>
void Store(void* data, std::int64_t index, T x) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<std::int64_t>(sizeof x), &x, sizeof x);
}

float LoadAs(const Layout& layout, const void* data, std::int64_t index) {
  switch (layout.type) {
    case CUDA_R_16BF:
      return Load<__nv_bfloat16>(data, index);
    case CUDA_R_16F:
      return Load<__half>(data, index);
    default:
      return Load<float>(data, index);
  }
}

void StoreAs(const Layout& layout, void* data, std::int64_t index, float x) {
  switch (layout.type) {
    case CUDA_R_16BF:
      return Store(data, index, __float2bfloat16_rn(x));
    case CUDA_R_16F:
      return Store(data, index, __float2half_rn(x));
    default:
      return Store(data, index, x);
  }
}

// Of 23 fraction bits 10 stay, to nearest even.
float ToTf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000U) == 0x7f800000U) return x;
  return std::bit_cast<float>((bits + 0xfffU + ((bits >> 13) & 1U)) & ~0x1fffU);
}

std::int64_t Index(const Layout& layout, std::int64_t batch, std::int64_t row, std::int64_t col) {
  const bool columns = layout.order == CUBLASLT_ORDER_COL;
  return batch * layout.batch_stride + (columns ? col * layout.ld + row : row * layout.ld + col);
}

// op(operand) as dense rows.
std::vector<float> Rows(const Layout& layout, const void* data, std::int64_t batch, bool transpose,
                        std::int64_t rows, std::int64_t cols, bool tf32) {
  std::vector<float> dense;
  dense.reserve(static_cast<std::size_t>(rows * cols));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      const float x =
          LoadAs(layout, data, transpose ? Index(layout, batch, j, i) : Index(layout, batch, i, j));
      dense.push_back(tf32 ? ToTf32(x) : x);
    }
  }
  return dense;
}

}  // namespace

void Multiply(const Problem& p, float alpha, const void* a, const void* b, float beta,
              const void* c, void* d) {
  const bool tf32 = p.desc.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a.type == CUDA_R_32F;
  std::vector<float> sums(static_cast<std::size_t>(p.n));
  for (std::int64_t batch = 0; batch < p.d.batch; ++batch) {
    const auto left = Rows(p.a, a, batch, p.desc.transpose_a != CUBLAS_OP_N, p.m, p.k, tf32);
    const auto right = Rows(p.b, b, batch, p.desc.transpose_b != CUBLAS_OP_N, p.k, p.n, tf32);
    for (std::int64_t i = 0; i < p.m; ++i) {
      std::fill(sums.begin(), sums.end(), 0.0F);
      for (std::int64_t k = 0; k < p.k; ++k) {
        const float x = left[static_cast<std::size_t>(i * p.k + k)];
        const float* const row = right.data() + k * p.n;
        for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += x * row[j];
      }
      for (std::int64_t j = 0; j < p.n; ++j) {
        float result = alpha * sums[static_cast<std::size_t>(j)];
        if (beta != 0) result += beta * LoadAs(p.c, c, Index(p.c, batch, i, j));
        StoreAs(p.d, d, Index(p.d, batch, i, j), result);
      }
    }
  }
}

}  // namespace weft::fakes::cublaslt
