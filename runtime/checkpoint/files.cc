#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "runtime/checkpoint/index.h"
#include "runtime/checkpoint/source.h"
#include "weft/safetensors.h"

namespace weft::runtime {
namespace {

// Shards that a load has open at a time: a rank may read from as many as there were ranks.
constexpr std::size_t kMostOpen = 8;

std::string ShapeOf(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  return absl::StrCat(dtype, " [", absl::StrJoin(shape, ", "), "]");
}

class CheckpointFiles final : public StateSource {
 public:
  CheckpointFiles(std::string folder, Index index)
      : folder_(std::move(folder)),
        subject_(absl::StrCat("the checkpoint in '", folder_, "'")),
        index_(std::move(index)),
        files_(index_.files.size()) {
    for (const SavedTensor& tensor : index_.tensors) by_name_[tensor.name] = &tensor;
  }

  const std::string& subject() const override { return subject_; }
  const std::string& identity() const override { return index_.set; }
  const Description& description() const override { return index_.description; }

  absl::Status Read(const Tensor& tensor, RowRange rows, Take take) override {
    const auto found = by_name_.find(tensor.name);
    if (found == by_name_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(subject_, " has no tensor '", tensor.name, "'"));
    }
    const SavedTensor& saved = *found->second;
    if (saved.dtype != tensor.dtype || saved.shape != tensor.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          subject_, " has the tensor '", tensor.name, "' as ", ShapeOf(saved.dtype, saved.shape),
          ", not as ", ShapeOf(tensor.dtype, tensor.shape)));
    }
    for (const SavedPiece& piece : saved.pieces) {
      const std::int64_t first = std::max(rows.first, piece.rows.first);
      const std::int64_t end = std::min(rows.end(), piece.rows.end());
      if (first >= end) continue;
      WEFT_RETURN_IF_ERROR(ReadPiece(saved, piece, {first, end - first}, take));
    }
    return absl::OkStatus();
  }

 private:
  // `rows` lie in the piece.
  absl::Status ReadPiece(const SavedTensor& tensor, const SavedPiece& piece, RowRange rows,
                         Take take) {
    WEFT_ASSIGN_OR_RETURN(const SafetensorsReader* reader, Open(piece.file));
    WEFT_ASSIGN_OR_RETURN(const SafetensorsEntry* entry, Find(*reader, tensor, piece));
    const std::int64_t row = tensor.RowBytes();
    const std::int64_t size = piece.rows.rows * row;
    // In the piece.
    const std::int64_t begin = (rows.first - piece.rows.first) * row;
    const std::int64_t end = begin + rows.rows * row;
    for (std::int64_t b = begin / index_.block_bytes; b * index_.block_bytes < end; ++b) {
      const std::int64_t first = b * index_.block_bytes;
      block_.resize(static_cast<std::size_t>(std::min(index_.block_bytes, size - first)));
      WEFT_RETURN_IF_ERROR(
          reader->Read(*entry, static_cast<std::uint64_t>(first), absl::MakeSpan(block_)));
      if (Checksum(block_) != piece.checksums[b]) {
        return absl::DataLossError(absl::StrCat(reader->path(), ": tensor '", tensor.name,
                                                "' is damaged, its checksum does not fit"));
      }
      const std::int64_t skipped = std::max(begin - first, std::int64_t{0});
      const std::int64_t last = std::min(static_cast<std::int64_t>(block_.size()), end - first);
      WEFT_RETURN_IF_ERROR(take(piece.rows.first * row + first + skipped,
                                absl::MakeConstSpan(block_).subspan(skipped, last - skipped)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const SafetensorsReader*> Open(std::int32_t file) {
    if (files_[file].reader != nullptr) return files_[file].reader.get();
    if (open_.size() == kMostOpen) {
      files_[open_.front()] = {};
      open_.pop_front();
    }
    const SavedFile& saved = index_.files[file];
    const std::string path = (std::filesystem::path(folder_) / saved.name).string();
    std::error_code error;
    const std::uintmax_t bytes = std::filesystem::file_size(path, error);
    if (error == std::errc::no_such_file_or_directory) {
      return absl::DataLossError(
          absl::StrCat(path, ": it is missing, and ", kIndexName, " lists it"));
    }
    if (!error && bytes != static_cast<std::uintmax_t>(saved.bytes)) {
      return absl::DataLossError(absl::StrCat(path, ": it has ", bytes, " bytes where ", kIndexName,
                                              " says ", saved.bytes));
    }
    WEFT_ASSIGN_OR_RETURN(auto reader, SafetensorsReader::Open(path));
    const auto& metadata = reader->metadata();
    const auto set = metadata.find("set");
    if (set != metadata.end() && set->second != index_.set) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": it is of the save ", set->second,
                                                     ", where ", kIndexName, " is of the save ",
                                                     index_.set));
    }
    if (metadata != ShardMetadata(index_.set, index_.description.steps)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": its metadata are not those of a shard of the save ", index_.set));
    }
    OpenFile& open = files_[file];
    open.reader = std::move(reader);
    for (const SafetensorsEntry& entry : open.reader->entries()) open.entries[entry.name] = &entry;
    open_.push_back(file);
    return open.reader.get();
  }

  absl::StatusOr<const SafetensorsEntry*> Find(const SafetensorsReader& reader,
                                               const SavedTensor& tensor,
                                               const SavedPiece& piece) const {
    std::vector<std::int64_t> shape = tensor.shape;
    shape[0] = piece.rows.rows;
    const auto& entries = files_[piece.file].entries;
    const auto found = entries.find(tensor.name);
    if (found == entries.end() || found->second->dtype != tensor.dtype ||
        found->second->shape != shape) {
      return absl::InvalidArgumentError(absl::StrCat(reader.path(), ": it has no tensor '",
                                                     tensor.name, "' as ",
                                                     ShapeOf(tensor.dtype, shape)));
    }
    return found->second;
  }

  struct OpenFile {
    std::unique_ptr<SafetensorsReader> reader;
    std::map<std::string, const SafetensorsEntry*> entries;
  };

  const std::string folder_;
  const std::string subject_;
  const Index index_;
  std::map<std::string, const SavedTensor*> by_name_;
  std::vector<OpenFile> files_;
  std::deque<std::int32_t> open_;  // of files_, the oldest first
  std::vector<std::byte> block_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateSource>> OpenCheckpoint(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / kIndexName).string();
  WEFT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, kLargestIndex));
  WEFT_ASSIGN_OR_RETURN(Index index, ParseIndex(text, path));
  return std::make_unique<CheckpointFiles>(folder, std::move(index));
}

}  // namespace weft::runtime
