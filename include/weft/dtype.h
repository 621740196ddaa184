// Element types of the tensors Weft touches. Master arithmetic is always fp32; kBF16 is what a
// trainer may keep its weights and gradients in, and what NS products may use as operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

enum class DType : std::uint8_t {
  kF32,   // IEEE binary32
  kBF16,  // upper half of a binary32, conversions round to nearest even
};

constexpr std::size_t SizeOf(DType type) { return type == DType::kF32 ? 4 : 2; }

constexpr std::string_view Name(DType type) { return type == DType::kF32 ? "f32" : "bf16"; }

}  // namespace weft
