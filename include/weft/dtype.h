// Element types of the tensors Weft touches. Master arithmetic is always fp32; kBF16 is what a
// trainer may keep its weights and gradients in, and what NS products may use as operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

// Whoever treats types differently switches over them without a default, so that the compiler names
// every place that a new one has to be thought about.
enum class DType : std::uint8_t {
  kF32,   // IEEE binary32
  kBF16,  // upper half of a binary32, conversions round to nearest even
};

// Bytes per element.
constexpr std::size_t SizeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
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
  }
  return "invalid";
}

}  // namespace weft
