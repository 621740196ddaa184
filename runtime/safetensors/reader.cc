#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "runtime/safetensors/header.h"
#include "weft/safetensors.h"

namespace weft {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

class FileReader final : public SafetensorsReader {
 public:
  FileReader(base::File file, std::uint64_t data_offset, safetensors::Header header)
      : file_(std::move(file)), data_offset_(data_offset), header_(std::move(header)) {}

  const std::string& path() const override { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const override { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const override { return header_.metadata; }
  absl::Status Read(const SafetensorsEntry& entry, std::uint64_t first,
                    absl::Span<std::byte> to) const override {
    WEFT_CHECK(entry.begin <= entry.end && entry.end <= file_.size() - data_offset_ &&
               first <= entry.end - entry.begin && to.size() <= entry.end - entry.begin - first)
        << "bytes outside of entry " << entry.name << " of " << path();
    return file_.Read(data_offset_ + entry.begin + first, to);
  }

 private:
  const base::File file_;
  const std::uint64_t data_offset_;
  const safetensors::Header header_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    const std::string& path) {
  static_assert(std::endian::native == std::endian::little, "the format is little-endian");
  WEFT_ASSIGN_OR_RETURN(base::File file, base::File::Open(path));
  if (file.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file.size(),
                     " bytes are too few for the header's length: not a safetensors file"));
  }
  std::uint64_t length;
  WEFT_RETURN_IF_ERROR(file.Read(0, absl::MakeSpan(reinterpret_cast<std::byte*>(&length), 8)));
  if (length > safetensors::kLargestHeader) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a header of ", length,
                     " bytes is beyond the format's 100 MB: not a safetensors file"));
  }
  if (length > file.size() - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the header of ", length,
                                                   " bytes is cut off, the file has ", file.size(),
                                                   " bytes"));
  }
  const std::uint64_t data_offset = kLengthBytes + length;
  std::string json(static_cast<std::size_t>(length), '\0');
  WEFT_RETURN_IF_ERROR(file.Read(
      kLengthBytes, absl::MakeSpan(reinterpret_cast<std::byte*>(json.data()), json.size())));
  WEFT_ASSIGN_OR_RETURN(safetensors::Header header,
                        safetensors::ParseHeader(json, file.size() - data_offset, path));
  return std::make_unique<FileReader>(std::move(file), data_offset, std::move(header));
}

absl::StatusOr<std::vector<std::byte>> SafetensorsReader::ReadAll(
    const SafetensorsEntry& entry) const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.end - entry.begin));
  WEFT_RETURN_IF_ERROR(Read(entry, 0, absl::MakeSpan(bytes)));
  return bytes;
}

}  // namespace weft
