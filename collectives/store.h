// The directory through which the ranks of a run meet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weft::collectives {

// Files appear whole or not at all. Names are taken as given; EscapedName() makes any text one.
// Thread-safe.
class Store {
 public:
  explicit Store(std::string directory) : directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }

  // NotFound or FailedPrecondition naming the directory when it cannot be used.
  absl::Status Check() const;
  // AlreadyExists when there is such a file; nobody's file is ever replaced.
  absl::Status Post(const std::string& name, const std::string& contents) const;
  // Nothing while there is no such file.
  std::optional<std::string> Read(const std::string& name) const;

 private:
  const std::string directory_;
};

// Letters, digits, '-' and '_' kept, other characters as %xx; long texts end in a hash instead.
std::string EscapedName(const std::string& text);

// FNV-1a, 64 bits.
std::uint64_t Fingerprint(const std::string& text);

}  // namespace weft::collectives
