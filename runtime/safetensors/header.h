// The JSON header of a safetensors file, as text and as entries. No file access.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "weft/safetensors.h"

namespace weft::safetensors {

// The format's own bound on the header, without the eight bytes of its length.
inline constexpr std::uint64_t kLargestHeader = 100'000'000;
inline constexpr char kMetadataKey[] = "__metadata__";

struct Header {
  std::vector<SafetensorsEntry> entries;  // in the order of the data
  std::map<std::string, std::string> metadata;
};

// Product of the extents times the element size; InvalidArgument (a phrase without the tensor's
// name) for a negative extent or a product beyond 2^63 - 1.
absl::StatusOr<std::int64_t> BytesOf(const std::string& dtype,
                                     absl::Span<const std::int64_t> shape);

// Everything that SafetensorsReader::Open promises about the header. `data_bytes` is the size of
// the data section, `file` begins every message.
absl::StatusOr<Header> ParseHeader(std::string_view json, std::uint64_t data_bytes,
                                   const std::string& file);

// A name as it is shown in a message: control characters and broken UTF-8 replaced, cut when long.
std::string Printable(std::string_view name);

}  // namespace weft::safetensors
