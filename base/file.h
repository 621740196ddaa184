// Reading regular files, and nothing that only looks like one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weft::base {

// A regular file open for reading. Reads go through the system call, not through a mapping: a file
// that somebody cuts off meanwhile gives an error and not a signal.
class File {
 public:
  // Never waits, so that a FIFO without a writer is refused like any other special file
  // (InvalidArgument). NotFound or PermissionDenied as the system says. Errors name `path`.
  static absl::StatusOr<File> Open(const std::string& path);
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  const std::string& path() const { return path_; }
  // When it was opened.
  std::uint64_t size() const { return size_; }
  // Fills `to` from `offset` on; DataLoss where the file has ended before. Thread-safe.
  absl::Status Read(std::uint64_t offset, absl::Span<std::byte> to) const;

 private:
  File(std::string path, int descriptor, std::uint64_t size);

  std::string path_;
  int descriptor_;
  std::uint64_t size_;
};

// All of a file of at most `most` bytes (InvalidArgument for a larger one).
absl::StatusOr<std::string> ReadFile(const std::string& path, std::uint64_t most);

}  // namespace weft::base
