// Conversions between fp32 and bf16 bit patterns.
#pragma once

#include <bit>
#include <cstdint>

namespace weft::device {

inline float FromBf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even. NaN stays NaN: the quiet bit is set because truncation alone
// could leave an infinity.
inline std::uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

inline float Load(const float* from) { return *from; }
inline float Load(const std::uint16_t* from) { return FromBf16(*from); }
inline void Store(float value, float* to) { *to = value; }
inline void Store(float value, std::uint16_t* to) { *to = ToBf16(value); }

}  // namespace weft::device
