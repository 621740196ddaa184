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

std::string FolderOf(const std::string& target) {
  return (std::filesystem::path(target).parent_path() / ".").string();
}

std::string PathOfDescriptor(int descriptor) { return absl::StrCat("/proc/self/fd/", descriptor); }

// A file without a name in the folder of `target`, or -1 where there cannot be one, or none that
// could get a name later.
int OpenNameless(const std::string& target, mode_t mode) {
#ifdef O_TMPFILE
  const int descriptor = ::open(FolderOf(target).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
  if (descriptor < 0 || ::access(PathOfDescriptor(descriptor).c_str(), F_OK) == 0) {
    return descriptor;
  }
  ::close(descriptor);
#endif
  return -1;
}

}  // namespace

absl::Status SyncFolder(const std::string& folder) {
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return Failure(errno, folder);
  const int error = ::fsync(handle) == 0 ? 0 : errno;
  ::close(handle);
  if (error == 0 || error == EINVAL || error == ENOTSUP || error == EROFS) return absl::OkStatus();
  return Failure(error, folder);
}

AtomicFile::AtomicFile(std::string path, std::string target, Kind kind, std::string temporary,
                       int descriptor)
    : path_(std::move(path)),
      target_(std::move(target)),
      kind_(kind),
      temporary_(std::move(temporary)),
      exists_(kind == Kind::kNamed),
      descriptor_(descriptor) {}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path, Kind kind) {
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
  int descriptor = kind == Kind::kNameless ? OpenNameless(target, mode) : -1;
  if (descriptor < 0) {
    // Whatever kept the other kind from being made, this one tells better.
    kind = Kind::kNamed;
    descriptor =
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
  }
  if (descriptor < 0) return Failure(errno, path);
  if (replaces) (void)::fchmod(descriptor, mode);
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, target, kind, temporary, descriptor));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (exists_) ::unlink(temporary_.c_str());
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

absl::Status AtomicFile::Link(bool& done) {
  const std::string from = PathOfDescriptor(descriptor_);
  const auto link = [&](const std::string& name) {
    return ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  done = link(target_);
  if (done) return absl::OkStatus();
  if (errno != EEXIST) return Failure(errno, path_);
  // Nothing links over an existing name in one step. A process that ends between this and the
  // rename leaves a complete file.
  (void)::unlink(temporary_.c_str());
  if (!link(temporary_)) return Failure(errno, path_);
  exists_ = true;
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (::fsync(descriptor_) != 0) return Failure(errno, path_);
  bool done = false;
  if (kind_ == Kind::kNameless) WEFT_RETURN_IF_ERROR(Link(done));
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) return Failure(errno, path_);
  if (!done) {
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) return Failure(errno, path_);
    exists_ = false;
  }
  return SyncFolder(FolderOf(target_));
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
