// Reading and writing safetensors files (https://github.com/huggingface/safetensors, format 0.x):
// an 8-byte little-endian header length, a JSON header, the tensors' bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#pragma GCC visibility push(default)
namespace weft {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;                // as in the file: "F32", "BF16", "F16", "I64", ...
  std::vector<std::int64_t> shape;  // empty for a scalar
  std::uint64_t begin = 0;          // bytes from the start of the data section
  std::uint64_t end = 0;
};

// Bytes per element; InvalidArgument for a dtype that the format does not have.
absl::StatusOr<std::int64_t> SafetensorsElementBytes(std::string_view dtype);

// A file opened for reading. Everything is checked at Open, against the size of the file: a
// header that is truncated, larger than 100 MB, not a JSON object, with a duplicate name, an
// unknown dtype, negative or overflowing shapes, offsets that overlap, leave gaps, leave the file
// or disagree with shape and dtype is InvalidArgument, naming file and tensor.
class SafetensorsReader {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(const std::string& path);
  virtual ~SafetensorsReader() = default;

  virtual const std::string& path() const = 0;
  // In the order of the data.
  virtual const std::vector<SafetensorsEntry>& entries() const = 0;
  virtual const std::map<std::string, std::string>& metadata() const = 0;
  // Bytes [first, first + to.size()) of a tensor. DataLoss, naming the file, where it has become
  // shorter since it was opened. Thread-safe.
  virtual absl::Status Read(const SafetensorsEntry& entry, std::uint64_t first,
                            absl::Span<std::byte> to) const = 0;
  // The whole tensor.
  absl::StatusOr<std::vector<std::byte>> ReadAll(const SafetensorsEntry& entry) const;
};

struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  absl::Span<const std::byte> data;
};

// Writes a whole file beside `path`, syncs and renames it: `path` is either the old file or the
// complete new one. Data lie in the order given, larger element types first, so that every tensor
// is aligned to its element. InvalidArgument, before anything is written, for a duplicate name, a
// name that is not UTF-8 or is "__metadata__", an unknown dtype, or data that does not fit its
// shape.
absl::Status WriteSafetensors(const std::string& path,
                              const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

// Whether `path` can be written by WriteSafetensors() and WriteFileAtomically(), found out by
// creating and removing a temporary file beside it. An existing file is not touched.
absl::Status CheckWritable(const std::string& path);

// Writes any bytes as WriteSafetensors() does: `path` is either the old file or the complete new
// one.
absl::Status WriteFileAtomically(const std::string& path, absl::Span<const std::byte> contents);

}  // namespace weft
#pragma GCC visibility pop
