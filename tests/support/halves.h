// The element types by their definitions, in arithmetic rather than in bits: what conversions and
// roundings are tested against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "weft/dtype.h"

namespace weft::testing {

struct Format {
  int digits;          // of the significand, the leading one included
  int least_exponent;  // of the smallest number, 2^least_exponent; all are multiples of it
  int exponent_end;    // 2^exponent_end is the first power that is too large
};
inline Format FormatOf(DType type) {
  switch (type) {
    case DType::kF32:
      return {24, -149, 128};
    case DType::kBF16:
      return {8, -133, 128};
    case DType::kF16:
      return {11, -24, 16};
  }
  return {};
}

// The nearest value of the type, ties to even.
inline double RoundTo(DType type, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const Format format = FormatOf(type);
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - format.digits, format.least_exponent));
  const double rounded = std::nearbyint(value / unit) * unit;
  const bool too_large = std::abs(rounded) >= std::ldexp(1.0, format.exponent_end);
  return too_large ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

// What rounding a value of at most `magnitude` to the type may be off by.
inline double RoundingError(DType type, double magnitude) {
  const Format format = FormatOf(type);
  return std::max(std::ldexp(magnitude, -format.digits),
                  std::ldexp(1.0, format.least_exponent - 1));
}

// The value of a pattern of a 16-bit type, and the pattern of the value that is nearest.
inline double HalfValue(DType type, std::uint16_t bits) {
  const Format format = FormatOf(type);
  const int fraction_bits = format.digits - 1;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x7fff >> fraction_bits) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, format.least_exponent);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - 1 + format.least_exponent);
}
inline std::uint16_t HalfBits(DType type, double value) {
  const Format format = FormatOf(type);
  const int fraction_bits = format.digits - 1;
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = 0x7fff & ~((1 << fraction_bits) - 1);
  const double magnitude = std::abs(RoundTo(type, value));
  int bits = 0;
  if (std::isnan(magnitude)) {
    bits = infinity + 1;
  } else if (std::isinf(magnitude)) {
    bits = infinity;
  } else if (magnitude != 0) {
    // In steps of the smallest number, of which the leading one counts as the exponent's first.
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int above = std::max(exponent - format.digits - format.least_exponent, 0);
    const int steps = static_cast<int>(std::ldexp(magnitude, -format.least_exponent - above));
    bits = (above << fraction_bits) + steps;
  }
  return static_cast<std::uint16_t>(sign | bits);
}

}  // namespace weft::testing
