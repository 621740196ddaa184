#include <algorithm>
#include <cctype>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/safetensors/atomic_file.h"
#include "runtime/safetensors/writer.h"
#include "weft/safetensors.h"

namespace weft::runtime {
namespace {

namespace fs = std::filesystem;

std::string InFolder(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

// weft-<steps>-<set>-<rank>.safetensors
std::string ShardName(std::int64_t steps, const std::string& set, int rank) {
  return absl::StrCat(kShardPrefix, steps, "-", set, "-", absl::Dec(rank, absl::kZeroPad5),
                      kShardSuffix);
}

// A name that ShardName() gives, or that of a temporary for it: nothing else is ever removed.
bool IsShardName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, absl::MaxSplits('-', 3));
  if (parts.size() != 4 || absl::StrCat(parts[0], "-") != kShardPrefix) return false;
  const auto all = [](const std::string& text, int (*is)(int)) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [&](unsigned char c) { return is(c) != 0; });
  };
  const std::size_t suffix = parts[3].find(kShardSuffix);
  if (suffix == std::string::npos || !all(parts[3].substr(0, suffix), std::isdigit)) return false;
  const std::string rest = parts[3].substr(suffix + sizeof(kShardSuffix) - 1);
  return all(parts[1], std::isdigit) && parts[2].size() == 16 && all(parts[2], std::isxdigit) &&
         (rest.empty() || (rest[0] == '.' && absl::EndsWith(rest, ".tmp")));
}

// Makes the folder where it is missing, so that it is there after a power cut.
absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path path = fs::absolute(folder, error); !error && !fs::exists(path, error);
       path = path.parent_path()) {
    missing.push_back(path);
  }
  if (!error) fs::create_directories(folder, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the folder ", folder));
  }
  for (const fs::path& path : missing) {
    WEFT_RETURN_IF_ERROR(safetensors::SyncFolder(path.parent_path().string()));
  }
  return absl::OkStatus();
}

bool IsIndexTemporary(const std::string& name) {
  return absl::StartsWith(name, absl::StrCat(kIndexName, ".")) && absl::EndsWith(name, ".tmp");
}

// Shards that the index does not list: of the save before, and of saves that did not end. What
// cannot be removed now is tried again at the next save.
void Sweep(const std::string& folder, const Index& index) {
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool listed = std::any_of(index.files.begin(), index.files.end(),
                                    [&](const SavedFile& file) { return file.name == name; });
    if ((!listed && IsShardName(name)) || IsIndexTemporary(name)) old.push_back(entry->path());
  }
  for (const fs::path& path : old) fs::remove(path, error);
}

// Before a save, which may need the room: what broken saves have left beside the checkpoint that is
// there, or where none is. Nothing, where what is there cannot be read.
void SweepLeftovers(const std::string& folder) {
  const std::string path = InFolder(folder, kIndexName);
  const absl::StatusOr<std::string> text = base::ReadFile(path, kLargestIndex);
  if (absl::IsNotFound(text.status())) return Sweep(folder, Index{});
  if (!text.ok()) return;
  const absl::StatusOr<Index> index = ParseIndex(*text, path);
  if (index.ok()) Sweep(folder, *index);
}

// On rank 0, while the others wait.
absl::Status Prepare(const std::string& folder) {
  WEFT_RETURN_IF_ERROR(MakeFolder(folder));
  SweepLeftovers(folder);
  return absl::OkStatus();
}

absl::Status CheckOptions(const std::string& folder, const SaveOptions& options) {
  if (folder.empty()) return absl::InvalidArgumentError("the name of the folder is empty");
  if (options.block_bytes < 1 || options.block_bytes > kMostBlockBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_bytes is ", options.block_bytes, ", not 1 to ", kMostBlockBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Checkpoint::WriteShard(const std::string& folder, const std::string& set,
                                    const std::vector<Tensor>& tensors, const SaveOptions& options,
                                    const Description& description, ShardReport& report) {
  std::vector<safetensors::TensorSource> sources;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const RowRange rows = layout_.Written(tensors[t], context_.rank);
    if (rows.rows > 0) report.pieces.push_back({static_cast<std::int32_t>(t), {0, rows, {}}});
  }
  if (report.pieces.empty()) return absl::OkStatus();
  for (auto& [t, piece] : report.pieces) {
    const Tensor& tensor = tensors[t];
    std::vector<std::int64_t> shape = tensor.shape;
    shape[0] = piece.rows.rows;
    sources.push_back({tensor.name, tensor.dtype, std::move(shape),
                       [this, &tensor, &piece = piece, &options](const auto& put) {
                         return CopyOut(tensor, piece.rows, options.block_bytes,
                                        [&](absl::Span<const std::byte> block) {
                                          piece.checksums.push_back(Checksum(block));
                                          return put(block);
                                        });
                       }});
  }
  report.file.name = ShardName(description.steps, set, context_.rank);
  WEFT_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                        safetensors::WriteFrom(InFolder(folder, report.file.name), sources,
                                               ShardMetadata(set, description.steps)));
  report.file.bytes = static_cast<std::int64_t>(bytes);
  return absl::OkStatus();
}

absl::Status Checkpoint::WriteIndex(const std::string& folder,
                                    const std::vector<std::string>& reports, Index& index) const {
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    WEFT_RETURN_IF_ERROR(AddReport(reports[rank], static_cast<int>(rank), index));
  }
  for (const SavedFile& file : index.files) {
    std::error_code error;
    const std::string path = InFolder(folder, file.name);
    const std::uintmax_t bytes = fs::file_size(path, error);
    if (!error && bytes == static_cast<std::uintmax_t>(file.bytes)) continue;
    return absl::FailedPreconditionError(absl::StrCat("rank 0 does not see ", path,
                                                      " as it was written: the folder must be one ",
                                                      "that all ranks share"));
  }
  // Read again, so that what is not to be read is never committed.
  const std::string text = ToText(index);
  const std::string path = InFolder(folder, kIndexName);
  WEFT_RETURN_IF_ERROR(ParseIndex(text, path).status());
  return WriteFileAtomically(path, {reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

absl::Status Checkpoint::Save(const std::string& folder, const SaveOptions& options,
                              const Description& description) {
  Communicators& communicators = context_.communicators;
  WEFT_RETURN_IF_ERROR(communicators.Agree(CheckOptions(folder, options), "save"));
  std::random_device random;
  const std::uint64_t draw = std::uint64_t{random()} << 32 | random();
  const std::vector<std::int64_t> own = {static_cast<std::int64_t>(draw), options.block_bytes,
                                         static_cast<std::int64_t>(options.weights)};
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> all,
                        communicators.ExchangeNumbers(own, "save"));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % own.size() == 0 || all[i] == all[i % own.size()]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", i / own.size(), " saves with other options than rank 0"));
  }
  const std::string set =
      absl::StrCat(absl::Hex(static_cast<std::uint64_t>(all[0]), absl::kZeroPad16));
  WEFT_RETURN_IF_ERROR(
      communicators.Agree(context_.rank == 0 ? Prepare(folder) : absl::OkStatus(), "save"));
  const std::vector<Tensor> tensors = TensorsOf(context_.specs, options.weights);
  ShardReport report;
  absl::Status written =
      communicators.Agree(WriteShard(folder, set, tensors, options, description, report), "save");
  if (!written.ok()) {
    // No index names it, and the disk may be full.
    std::error_code ignored;
    if (!report.file.name.empty()) fs::remove(InFolder(folder, report.file.name), ignored);
    return written;
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> reports,
                        communicators.GatherText(ToText(report), "save"));
  Index index{set, description, options.block_bytes, {}, {}};
  for (const Tensor& tensor : tensors) {
    index.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
  }
  // Where this fails the new shards stay: whether the index has come to name them is not known.
  WEFT_RETURN_IF_ERROR(communicators.Agree(
      context_.rank == 0 ? WriteIndex(folder, reports, index) : absl::OkStatus(), "save"));
  if (context_.rank == 0) Sweep(folder, index);
  return absl::OkStatus();
}

}  // namespace weft::runtime
