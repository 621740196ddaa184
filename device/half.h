// The 16-bit floating-point types: storage, and conversions from and to fp32. For the host and for
// GPU kernels, with the same bits.
#pragma once

#include <cstdint>

#include "device/host_device.h"

namespace weft::device {

// Bit patterns, told apart by type.
struct BF16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

namespace internal {

// Not std::bit_cast: no device function.
WEFT_HD inline std::uint32_t BitsOf(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}
WEFT_HD inline float FloatOf(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace internal

// Exact.
WEFT_HD inline float ToFloat(BF16 half) {
  return internal::FloatOf(static_cast<std::uint32_t>(half.bits) << 16);
}

// Exact. Chooses between values rather than paths, so that loops over it are vectorized.
WEFT_HD inline float ToFloat(F16 half) {
  // The exponents' biases are 112 apart: 127 - 15. An infinity's or NaN's is all ones in both.
  constexpr std::uint32_t kRebase = 112u << 23;
  const std::uint32_t magnitude = half.bits & 0x7fffu;
  const std::uint32_t rebased = (magnitude << 13) + kRebase;
  // A subnormal has no leading one: read as a normal number of the exponent above, it is 2^-14 too
  // large.
  const float subnormal =
      internal::FloatOf(rebased + (1u << 23)) - internal::FloatOf(kRebase + (1u << 23));
  const std::uint32_t bits = magnitude < 0x400u    ? internal::BitsOf(subnormal)
                             : magnitude < 0x7c00u ? rebased
                                                   : rebased + kRebase;
  return internal::FloatOf(bits | static_cast<std::uint32_t>(half.bits & 0x8000u) << 16);
}

// Both round to nearest, ties to even, and beyond the largest finite value to infinity. NaN stays
// NaN: the quiet bit is set because truncation alone could leave an infinity.
WEFT_HD inline BF16 ToBF16(float value) {
  const std::uint32_t bits = internal::BitsOf(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}

WEFT_HD inline F16 ToF16(float value) {
  const std::uint32_t bits = internal::BitsOf(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // The carry of the rounding may go into the exponent.
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // The last bit of fp32 numbers from 1/2 is worth 2^-24, as is that of subnormal halves: the
  // addition rounds.
  const std::uint32_t subnormal =
      internal::BitsOf(internal::FloatOf(magnitude) + 0.5f) - internal::BitsOf(0.5f);
  const std::uint32_t quiet = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  constexpr std::uint32_t kInfinity = 0x7f800000u;
  constexpr std::uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  constexpr std::uint32_t kOverflow = 0x477ff000u;  // 65520: half a step above the largest half
  const std::uint32_t rounded = magnitude < kSmallestNormal ? subnormal
                                : magnitude < kOverflow     ? normal
                                : magnitude <= kInfinity    ? 0x7c00u
                                                            : quiet;
  return {static_cast<std::uint16_t>(rounded | ((bits >> 16) & 0x8000u))};
}

// For templates over element types.
WEFT_HD inline float Load(const float* from) { return *from; }
WEFT_HD inline float Load(const BF16* from) { return ToFloat(*from); }
WEFT_HD inline float Load(const F16* from) { return ToFloat(*from); }
WEFT_HD inline void Store(float value, float* to) { *to = value; }
WEFT_HD inline void Store(float value, BF16* to) { *to = ToBF16(value); }
WEFT_HD inline void Store(float value, F16* to) { *to = ToF16(value); }

}  // namespace weft::device
