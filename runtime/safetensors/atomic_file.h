// A file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weft::safetensors {

// Written beside its final path under a temporary name that ends in ".tmp"; removed on destruction
// unless Commit() has succeeded. A symbolic link at the final path keeps pointing at the same file,
// whose contents are replaced. Errors name the final path.
class AtomicFile {
 public:
  // InvalidArgument when the path names something that is not a regular file, PermissionDenied,
  // NotFound (no such folder) or ResourceExhausted as the system says.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Write(absl::Span<const std::byte> bytes);
  // Syncs the contents, renames, syncs the folder. Nothing may be written afterwards.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string target, std::string temporary, int descriptor);

  std::string path_;       // as the caller named it
  std::string target_;     // behind symbolic links
  std::string temporary_;  // empty after Commit()
  int descriptor_;
};

}  // namespace weft::safetensors
