#include "runtime/safetensors/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "weft/safetensors.h"

namespace weft {
namespace safetensors {
namespace {

// The kernel transfers at most about 2 GiB per call.
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;

absl::Status Failure(int error, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path));
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string target, std::string temporary, int descriptor)
    : path_(std::move(path)),
      target_(std::move(target)),
      temporary_(std::move(temporary)),
      descriptor_(descriptor) {}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("cannot write a file with an empty name");
  std::string target = path;
  mode_t mode = 0666;
  bool replaces = false;
  struct stat found;
  if (::stat(path.c_str(), &found) == 0) {
    if (!S_ISREG(found.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot write ", path, ": it is not a regular file"));
    }
    std::error_code error;
    const std::filesystem::path resolved = std::filesystem::canonical(path, error);
    if (!error) target = resolved.string();
    mode = found.st_mode & 0777;
    replaces = true;
    if (::access(target.c_str(), W_OK) != 0) return Failure(errno, path);
  }
  static std::atomic<int> serial{0};
  const std::string temporary = absl::StrCat(target, ".", ::getpid(), "-", serial++, ".tmp");
  const int descriptor =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
  if (descriptor < 0) return Failure(errno, path);
  if (replaces) (void)::fchmod(descriptor, mode);
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, target, temporary, descriptor));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

absl::Status AtomicFile::Write(absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::write(descriptor_, bytes.data(), std::min(bytes.size(), kLargestWrite));
    if (written < 0) {
      if (errno == EINTR) continue;
      return Failure(errno, path_);
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (::fsync(descriptor_) != 0) return Failure(errno, path_);
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) return Failure(errno, path_);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return Failure(errno, path_);
  temporary_.clear();
  // The rename itself survives a power cut only once the folder is synced. Some file systems cannot
  // sync folders; the file is complete there all the same.
  const std::string folder = (std::filesystem::path(target_).parent_path() / ".").string();
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle >= 0) {
    (void)::fsync(handle);
    ::close(handle);
  }
  return absl::OkStatus();
}

}  // namespace safetensors

absl::Status CheckWritable(const std::string& path) {
  return safetensors::AtomicFile::Create(path).status();
}

absl::Status WriteFileAtomically(const std::string& path, absl::Span<const std::byte> contents) {
  WEFT_ASSIGN_OR_RETURN(const auto file, safetensors::AtomicFile::Create(path));
  WEFT_RETURN_IF_ERROR(file->Write(contents));
  return file->Commit();
}

}  // namespace weft
