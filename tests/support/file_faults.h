// Steps on files as the system sees them, for tests that let one fail or end the process there: the
// program's own write(), fsync(), linkat(), rename(), unlink() and remove() take the place of the C
// library's.
#pragma once

#include <functional>
#include <string>

namespace weft::testing {

struct FileStep {
  std::string call;  // "write", "fsync", "linkat", "rename" or "unlink"
  // What it works on: of linkat and rename the new name; of a file without a name what /proc shows.
  std::string path;
  int descriptor = -1;  // of write and fsync
};

// While it lives, `before` is called before each step on a path that begins with `prefix`, on the
// thread that takes it; what it returns other than 0 is the error that the step fails with. One at
// a time, and made and destroyed while nobody writes.
class WatchedFiles {
 public:
  WatchedFiles(std::string prefix, std::function<int(const FileStep&)> before);
  ~WatchedFiles();
  WatchedFiles(const WatchedFiles&) = delete;
  WatchedFiles& operator=(const WatchedFiles&) = delete;
};

}  // namespace weft::testing
