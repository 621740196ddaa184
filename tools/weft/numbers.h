// Element types of files against those that Weft computes with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/types/span.h"
#include "weft/dtype.h"

namespace weft::tool {

// The types that take part in an update.
enum class FileFloat : std::uint8_t { kF16, kBF16, kF32, kF64 };

// By the name that safetensors uses; nothing for the other types.
std::optional<FileFloat> FileFloatOf(std::string_view dtype);
// What Weft holds such a tensor in: the same type, fp32 for F64.
DType WorkingType(FileFloat type);

// One value, rounded to nearest even where the target is narrower. Overflow gives infinity.
float HalfToFloat(std::uint16_t half);
std::uint16_t FloatToHalf(float value);
float Bf16ToFloat(std::uint16_t bits);
std::uint16_t FloatToBf16(float value);

// `count` elements of a file's bytes to the working type and back. The bytes need no alignment.
void FromFile(FileFloat type, const std::byte* from, std::int64_t count, void* to);
void ToFile(FileFloat type, const void* from, std::int64_t count, std::byte* to);
// One element of an array of the working type.
double ValueAt(DType type, const void* data, std::int64_t index);
// The nearest value of the working type.
double Rounded(DType type, double value);

}  // namespace weft::tool
