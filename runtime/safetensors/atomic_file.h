// A file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weft::safetensors {

// Has what was made or renamed in the folder survive a power cut. OK on file systems that cannot
// sync folders.
absl::Status SyncFolder(const std::string& folder);

// Written beside its final path: into a file without a name, which goes with the process however
// that ends, where the file system has those; elsewhere under a temporary name that ends in ".tmp"
// and is removed on destruction unless Commit() has succeeded. A symbolic link at the final path
// keeps pointing at the same file, whose contents are replaced. Errors name the final path.
class AtomicFile {
 public:
  enum class Kind { kNameless, kNamed };
  // InvalidArgument when the path names something that is not a regular file, PermissionDenied,
  // NotFound (no such folder) or ResourceExhausted as the system says. kNamed is for tests: the
  // other kind turns into it by itself.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path,
                                                            Kind kind = Kind::kNameless);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  Kind kind() const { return kind_; }
  absl::Status Write(absl::Span<const std::byte> bytes);
  // Syncs the contents, puts them at the final path in one step, syncs the folder. Nothing may be
  // written afterwards.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string target, Kind kind, std::string temporary,
             int descriptor);

  // Gives a nameless file its final name or, where that is taken, the temporary one.
  absl::Status Link(bool& done);

  const std::string path_;    // as the caller named it
  const std::string target_;  // behind symbolic links
  const Kind kind_;
  const std::string temporary_;
  bool exists_;  // a file with the temporary name, which is ours to remove
  int descriptor_;
};

}  // namespace weft::safetensors
