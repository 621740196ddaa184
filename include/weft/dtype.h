// Element types of the tensors Weft touches. Master arithmetic is always fp32; the 16-bit types are
// what a trainer may keep its weights and gradients in, and what NS products may use as operands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#pragma GCC visibility push(default)
namespace weft {

// Whoever treats types differently switches over them without a default, so that the compiler names
// every place that a new one has to be thought about. Conversions to the narrower ones round to
// nearest, ties to even; beyond the largest value they give infinity.
enum class DType : std::uint8_t {
  kF32,   // IEEE binary32
  kBF16,  // upper half of a binary32
  kF16,   // IEEE binary16: at most 65504, normal from 6.1e-5, a multiple of 6e-8 below
};

inline constexpr std::array kDTypes = {DType::kF32, DType::kBF16, DType::kF16};

// Whether a value from outside names a type.
constexpr bool IsDType(DType type) { return static_cast<std::size_t>(type) < kDTypes.size(); }

// Bytes per element.
constexpr std::size_t SizeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
  }
  return 0;
}

constexpr std::string_view Name(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
  }
  return "invalid";
}

// The type of that Name().
constexpr std::optional<DType> DTypeNamed(std::string_view name) {
  for (const DType type : kDTypes) {
    if (Name(type) == name) return type;
  }
  return std::nullopt;
}

}  // namespace weft
#pragma GCC visibility pop
