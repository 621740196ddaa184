#include "collectives/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/store_client.h"
#include "collectives/store_wire.h"

namespace weft::collectives {
namespace {

absl::Status SystemError(const std::string& what, const std::string& path) {
  // ErrnoToStatus is a thread-safe strerror here; its codes are not wanted.
  return absl::UnavailableError(
      absl::ErrnoToStatus(errno, absl::StrCat(what, " '", path, "'")).message());
}

bool WriteAll(int fd, const std::string& contents) {
  std::size_t written = 0;
  while (written < contents.size()) {
    const ssize_t n = ::write(fd, contents.data() + written, contents.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    written += static_cast<std::size_t>(n);
  }
  return true;
}

std::unique_ptr<StoreClient> ClientFor(const std::string& place) {
  if (!IsStoreAddress(place)) return nullptr;
  absl::StatusOr<StoreAddress> address = ParseStoreAddress(place);
  // What Check() refuses is nowhere.
  return std::make_unique<StoreClient>(address.ok() ? *std::move(address) : StoreAddress{});
}

}  // namespace

Store::Store(std::string place) : place_(std::move(place)), client_(ClientFor(place_)) {}
Store::~Store() = default;

std::string Store::described() const {
  return client_ == nullptr ? place_ : place_.substr(0, place_.find('/', sizeof("tcp://") - 1));
}

absl::Status Store::Check() const {
  if (client_ != nullptr) return ParseStoreAddress(place_).status();
  struct stat info {};
  if (::stat(place_.c_str(), &info) != 0) {
    return absl::NotFoundError(
        absl::ErrnoToStatus(errno, absl::StrCat("store '", place_, "' cannot be read")).message());
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("store '", place_, "' is not a directory"));
  }
  return absl::OkStatus();
}

absl::Status Store::Post(const std::string& name, const std::string& contents) const {
  if (client_ != nullptr) return client_->Post(name, contents);
  static std::atomic<int> counter{0};
  const std::string path = absl::StrCat(place_, "/", name);
  const std::string temporary = absl::StrCat(path, ".", ::getpid(), ".", counter++, ".tmp");
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return SystemError("cannot create", temporary);
  const bool written = WriteAll(fd, contents);
  if (::close(fd) != 0 || !written) {
    absl::Status error = SystemError("cannot write", temporary);
    ::unlink(temporary.c_str());
    return error;
  }
  // A link, unlike a rename, fails when the name is taken.
  const bool linked = ::link(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  ::unlink(temporary.c_str());
  errno = error;
  if (linked) return absl::OkStatus();
  if (error == EEXIST) return absl::AlreadyExistsError(absl::StrCat("'", path, "' exists"));
  return SystemError("cannot create", path);
}

std::optional<std::string> Store::Read(const std::string& name) const {
  if (client_ != nullptr) return client_->Read(name);
  const std::string path = absl::StrCat(place_, "/", name);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string contents;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    contents.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fd);
  return contents;
}

std::uint64_t Fingerprint(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string EscapedName(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_';
    if (plain) {
      escaped += c;
    } else {
      absl::StrAppendFormat(&escaped, "%%%02x", static_cast<unsigned char>(c));
    }
  }
  constexpr std::size_t kLongest = 120;
  if (escaped.size() <= kLongest) return escaped;
  return absl::StrFormat("%s-%016x", escaped.substr(0, kLongest), Fingerprint(text));
}

}  // namespace weft::collectives
