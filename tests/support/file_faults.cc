#include "tests/support/file_faults.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <memory>
#include <utility>

namespace weft::testing {
namespace {

struct Watch {
  std::string prefix;
  std::function<int(const FileStep&)> before;
};
std::unique_ptr<Watch> watch;

std::string PathOf(int descriptor) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof(path));
  return length < 0 ? std::string() : std::string(path, static_cast<std::size_t>(length));
}

// True where the step is to fail; errno says how.
bool Fails(const char* call, const char* path, int descriptor) {
  if (watch == nullptr) return false;
  const FileStep step{call, path != nullptr ? path : PathOf(descriptor), descriptor};
  if (step.path.rfind(watch->prefix, 0) != 0) return false;
  const int error = watch->before(step);
  if (error != 0) errno = error;
  return error != 0;
}

}  // namespace

WatchedFiles::WatchedFiles(std::string prefix, std::function<int(const FileStep&)> before) {
  watch = std::make_unique<Watch>(Watch{std::move(prefix), std::move(before)});
}

WatchedFiles::~WatchedFiles() { watch.reset(); }

}  // namespace weft::testing

#define WEFT_INSTEAD_OF_LIBC extern "C" __attribute__((visibility("default")))

WEFT_INSTEAD_OF_LIBC ssize_t write(int descriptor, const void* data, size_t bytes) {
  if (weft::testing::Fails("write", nullptr, descriptor)) return -1;
  return ::syscall(SYS_write, descriptor, data, bytes);
}

WEFT_INSTEAD_OF_LIBC int fsync(int descriptor) {
  if (weft::testing::Fails("fsync", nullptr, descriptor)) return -1;
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

WEFT_INSTEAD_OF_LIBC int linkat(int from_folder, const char* from, int to_folder, const char* to,
                                int flags) noexcept {
  if (weft::testing::Fails("linkat", to, -1)) return -1;
  return static_cast<int>(::syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
}

WEFT_INSTEAD_OF_LIBC int rename(const char* from, const char* to) noexcept {
  if (weft::testing::Fails("rename", to, -1)) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

WEFT_INSTEAD_OF_LIBC int unlink(const char* path) noexcept {
  if (weft::testing::Fails("unlink", path, -1)) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

// As std::filesystem::remove() calls it.
WEFT_INSTEAD_OF_LIBC int remove(const char* path) noexcept {
  if (weft::testing::Fails("unlink", path, -1)) return -1;
  if (::syscall(SYS_unlinkat, AT_FDCWD, path, 0) == 0) return 0;
  return errno == EISDIR ? static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR))
                         : -1;
}
