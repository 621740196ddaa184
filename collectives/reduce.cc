#include "collectives/reduce.h"

#include <algorithm>

#include "device/half.h"

namespace weft::collectives {
namespace {

constexpr std::int64_t kBlock = 1024;

using device::BF16;
using device::F16;
using device::Load;
using device::Store;

template <typename T>
void Reduce(absl::Span<const void* const> sources, T* to, std::int64_t count, ReduceOp op) {
  float sum[kBlock];
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < n; ++i) sum[i] = Load(first + i);
    for (const void* source : sources.subspan(1)) {
      const T* from = static_cast<const T*>(source) + begin;
      if (op == ReduceOp::kSum) {
        for (std::int64_t i = 0; i < n; ++i) sum[i] += Load(from + i);
      } else {
        for (std::int64_t i = 0; i < n; ++i) {
          const float value = Load(from + i);
          // Not `value > sum[i]`: a NaN on either side must win, and stay.
          sum[i] = sum[i] >= value ? sum[i] : (sum[i] != sum[i] ? sum[i] : value);
        }
      }
    }
    for (std::int64_t i = 0; i < n; ++i) Store(sum[i], to + begin + i);
  }
}

}  // namespace

void ReduceSources(absl::Span<const void* const> sources, void* to, std::int64_t count, DType dtype,
                   ReduceOp op) {
  switch (dtype) {
    case DType::kF32:
      Reduce(sources, static_cast<float*>(to), count, op);
      return;
    case DType::kBF16:
      Reduce(sources, static_cast<BF16*>(to), count, op);
      return;
    case DType::kF16:
      Reduce(sources, static_cast<F16*>(to), count, op);
      return;
  }
}

}  // namespace weft::collectives
