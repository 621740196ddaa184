#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "runtime/safetensors/header.h"
#include "weft/safetensors.h"

namespace weft {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

// A whole file mapped for reading.
class Mapping {
 public:
  static absl::StatusOr<Mapping> Open(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    absl::StatusOr<Mapping> mapping = Map(descriptor, path);
    ::close(descriptor);
    return mapping;
  }
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (base_ != nullptr) ::munmap(base_, size_);
  }

  const std::byte* data() const { return static_cast<const std::byte*>(base_); }
  std::uint64_t size() const { return size_; }

 private:
  Mapping(void* base, std::size_t size) : base_(base), size_(size) {}

  static absl::StatusOr<Mapping> Map(int descriptor, const std::string& path) {
    struct stat found;
    if (::fstat(descriptor, &found) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
    }
    if (!S_ISREG(found.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
    }
    const auto size = static_cast<std::size_t>(found.st_size);
    if (size == 0) return Mapping(nullptr, 0);
    void* base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (base == MAP_FAILED) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
    }
    return Mapping(base, size);
  }

  void* base_;
  std::size_t size_;
};

class MappedReader final : public SafetensorsReader {
 public:
  MappedReader(std::string path, Mapping mapping, std::uint64_t data_offset,
               safetensors::Header header)
      : path_(std::move(path)),
        mapping_(std::move(mapping)),
        data_offset_(data_offset),
        header_(std::move(header)) {}

  const std::string& path() const override { return path_; }
  const std::vector<SafetensorsEntry>& entries() const override { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const override { return header_.metadata; }
  absl::Span<const std::byte> Data(const SafetensorsEntry& entry) const override {
    WEFT_CHECK(entry.begin <= entry.end && entry.end <= mapping_.size() - data_offset_)
        << "entry " << entry.name << " is not one of " << path_;
    return {mapping_.data() + data_offset_ + entry.begin,
            static_cast<std::size_t>(entry.end - entry.begin)};
  }

 private:
  const std::string path_;
  const Mapping mapping_;
  const std::uint64_t data_offset_;
  const safetensors::Header header_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    const std::string& path) {
  static_assert(std::endian::native == std::endian::little, "the format is little-endian");
  WEFT_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Open(path));
  if (mapping.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", mapping.size(),
                     " bytes are too few for the header's length: not a safetensors file"));
  }
  std::uint64_t length;
  std::memcpy(&length, mapping.data(), kLengthBytes);
  if (length > safetensors::kLargestHeader) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a header of ", length,
                     " bytes is beyond the format's 100 MB: not a safetensors file"));
  }
  if (length > mapping.size() - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the header of ", length,
                                                   " bytes is cut off, the file has ",
                                                   mapping.size(), " bytes"));
  }
  const std::uint64_t data_offset = kLengthBytes + length;
  const std::string_view json(reinterpret_cast<const char*>(mapping.data()) + kLengthBytes,
                              static_cast<std::size_t>(length));
  WEFT_ASSIGN_OR_RETURN(safetensors::Header header,
                        safetensors::ParseHeader(json, mapping.size() - data_offset, path));
  return std::make_unique<MappedReader>(path, std::move(mapping), data_offset, std::move(header));
}

}  // namespace weft
