#include "tools/weft/numbers.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace weft::tool {

std::optional<FileFloat> FileFloatOf(std::string_view dtype) {
  if (dtype == "F16") return FileFloat::kF16;
  if (dtype == "BF16") return FileFloat::kBF16;
  if (dtype == "F32") return FileFloat::kF32;
  if (dtype == "F64") return FileFloat::kF64;
  return std::nullopt;
}

DType WorkingType(FileFloat type) {
  switch (type) {
    case FileFloat::kBF16:
      return DType::kBF16;
    case FileFloat::kF16:
      return DType::kF16;
    case FileFloat::kF32:
    case FileFloat::kF64:
      break;
  }
  return DType::kF32;
}

float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

std::uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00u);
  const float magnitude = std::abs(value);
  if (magnitude >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x1p-14f) {
    // A subnormal is a whole number of 2^-24; nearbyint rounds ties to even.
    const float units = std::nearbyint(magnitude * 0x1p24f);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(units));
  }
  const std::uint32_t rebased = (bits & 0x7fffffffu) - (112u << 23);
  const std::uint32_t rounded = rebased + 0xfffu + (rebased >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

float Bf16ToFloat(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

std::uint16_t FloatToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void FromFile(FileFloat type, const std::byte* from, std::int64_t count, void* to) {
  const auto n = static_cast<std::size_t>(count);
  auto* floats = static_cast<float*>(to);
  switch (type) {
    case FileFloat::kF16:
    case FileFloat::kBF16:
      if (n != 0) std::memcpy(to, from, n * 2);
      return;
    case FileFloat::kF32:
      if (n != 0) std::memcpy(to, from, n * 4);
      return;
    case FileFloat::kF64:
      for (std::size_t i = 0; i < n; ++i) {
        double value;
        std::memcpy(&value, from + i * 8, 8);
        floats[i] = static_cast<float>(Rounded(DType::kF32, value));
      }
  }
}

void ToFile(FileFloat type, const void* from, std::int64_t count, std::byte* to) {
  const auto n = static_cast<std::size_t>(count);
  const auto* floats = static_cast<const float*>(from);
  switch (type) {
    case FileFloat::kF16:
    case FileFloat::kBF16:
      if (n != 0) std::memcpy(to, from, n * 2);
      return;
    case FileFloat::kF32:
      if (n != 0) std::memcpy(to, from, n * 4);
      return;
    case FileFloat::kF64:
      for (std::size_t i = 0; i < n; ++i) {
        const double value = floats[i];
        std::memcpy(to + i * 8, &value, 8);
      }
  }
}

double ValueAt(DType type, const void* data, std::int64_t index) {
  switch (type) {
    case DType::kF32:
      return static_cast<const float*>(data)[index];
    case DType::kBF16:
      return Bf16ToFloat(static_cast<const std::uint16_t*>(data)[index]);
    case DType::kF16:
      return HalfToFloat(static_cast<const std::uint16_t*>(data)[index]);
  }
  return NAN;
}

double Rounded(DType type, double value) {
  // Out of range, the conversion itself would be undefined.
  constexpr double kTooLarge = 0x1.ffffffp127;
  const float narrow = std::abs(value) >= kTooLarge
                           ? std::copysign(HUGE_VALF, static_cast<float>(std::copysign(1, value)))
                           : static_cast<float>(value);
  switch (type) {
    case DType::kF32:
      return narrow;
    case DType::kBF16:
      return Bf16ToFloat(FloatToBf16(narrow));
    case DType::kF16:
      return HalfToFloat(FloatToHalf(narrow));
  }
  return NAN;
}

}  // namespace weft::tool
