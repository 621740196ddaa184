#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::base {

File::File(std::string path, int descriptor, std::uint64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<File> File::Open(const std::string& path) {
  // O_NONBLOCK means nothing to regular files.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  File file(path, descriptor, 0);
  struct stat found;
  if (::fstat(descriptor, &found) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  }
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  file.size_ = static_cast<std::uint64_t>(found.st_size);
  return file;
}

absl::Status File::Read(std::uint64_t offset, absl::Span<std::byte> to) const {
  // The kernel transfers at most about 2 GiB per call.
  constexpr std::size_t kLargestRead = std::size_t{1} << 30;
  while (!to.empty()) {
    const ssize_t got = ::pread(descriptor_, to.data(), std::min(to.size(), kLargestRead),
                                static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(path_, ": ends at byte ", offset, ", it was longer when it was opened"));
    }
    offset += static_cast<std::uint64_t>(got);
    to.remove_prefix(static_cast<std::size_t>(got));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, std::uint64_t most) {
  WEFT_ASSIGN_OR_RETURN(const File file, File::Open(path));
  if (file.size() > most) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": larger than ", most, " bytes"));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  WEFT_RETURN_IF_ERROR(
      file.Read(0, absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size())));
  return text;
}

}  // namespace weft::base
