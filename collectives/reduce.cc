#include "collectives/reduce.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft::collectives {
namespace {

constexpr std::int64_t kBlock = 1024;

float FromBF16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t ToBF16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

float Load(float value) { return value; }
float Load(std::uint16_t bits) { return FromBF16(bits); }
void Store(float value, float* to) { *to = value; }
void Store(float value, std::uint16_t* to) { *to = ToBF16(value); }

template <typename T>
void Reduce(absl::Span<const void* const> sources, T* to, std::int64_t count, ReduceOp op) {
  float sum[kBlock];
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < n; ++i) sum[i] = Load(first[i]);
    for (const void* source : sources.subspan(1)) {
      const T* from = static_cast<const T*>(source) + begin;
      if (op == ReduceOp::kSum) {
        for (std::int64_t i = 0; i < n; ++i) sum[i] += Load(from[i]);
      } else {
        for (std::int64_t i = 0; i < n; ++i) {
          const float value = Load(from[i]);
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
      Reduce(sources, static_cast<std::uint16_t*>(to), count, op);
      return;
  }
}

}  // namespace weft::collectives
