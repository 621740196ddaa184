// The index of a checkpoint: which files belong to it, which rows of which tensor lie where, and
// their checksums. No file access.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/checkpoint/description.h"
#include "runtime/checkpoint/layout.h"

namespace weft::runtime {

inline constexpr char kIndexName[] = "weft-checkpoint.json";
// Begin and end of the names of shards.
inline constexpr char kShardPrefix[] = "weft-";
inline constexpr char kShardSuffix[] = ".safetensors";
inline constexpr std::int64_t kMostBlockBytes = std::int64_t{1} << 30;
// Of an index, in bytes: more is neither written nor read.
inline constexpr std::uint64_t kLargestIndex = std::uint64_t{1} << 30;

// CRC-32 as of zlib.
std::uint32_t Checksum(absl::Span<const std::byte> bytes);

// Metadata of each shard of a save.
std::map<std::string, std::string> ShardMetadata(const std::string& set, std::int64_t steps);

struct SavedFile {
  std::string name;  // in the folder of the index
  std::int64_t bytes = 0;
};

// What one file has of a tensor, under the tensor's name.
struct SavedPiece {
  std::int32_t file = 0;  // index into Index::files
  RowRange rows;
  std::vector<std::uint32_t> checksums;  // of its blocks: block_bytes each, the last one shorter
};

struct SavedTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<SavedPiece> pieces;  // in the order of rows

  std::int64_t RowBytes() const;
};

struct Index {
  std::string set;  // tells one save from every other; in the metadata of each of its files
  Description description;
  std::int64_t block_bytes = 0;
  std::vector<SavedFile> files;
  std::vector<SavedTensor> tensors;
};

// JSON, with a checksum of its own.
std::string ToText(const Index& index);
// InvalidArgument names `path`: no index, too large, of another version, damaged, or pieces that do
// not make up their tensors.
absl::StatusOr<Index> ParseIndex(std::string_view text, const std::string& path);

// What a rank tells rank 0 of the file that it wrote: the file, and its piece of each tensor in
// `index`, which then has them. An empty name: no file.
struct ShardReport {
  SavedFile file;
  std::vector<std::pair<std::int32_t, SavedPiece>> pieces;  // by index of the tensor
};
std::string ToText(const ShardReport& report);
absl::Status AddReport(std::string_view text, int rank, Index& index);

}  // namespace weft::runtime
