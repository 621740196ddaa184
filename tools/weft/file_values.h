// Values of float tensors in files: read into the type that Weft computes with, and looked through.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/weft/numbers.h"
#include "weft/safetensors.h"

namespace weft::tool {

// Elements [first, first + count) of a tensor of a float dtype, in its working type.
absl::Status ReadValues(const SafetensorsReader& file, const SafetensorsEntry& entry,
                        std::int64_t first, std::int64_t count, void* to);

struct ValueCounts {
  std::int64_t not_finite = 0;  // infinite or not a number, in the file
  std::int64_t too_large = 0;   // finite in the file, infinite in the working type
};
absl::StatusOr<ValueCounts> CountValues(const SafetensorsReader& file,
                                        const SafetensorsEntry& entry);

// How many of `count` elements are not finite; they are of the working type of a file's `type`.
std::int64_t CountNotFinite(FileFloat type, const void* values, std::int64_t count);

}  // namespace weft::tool
