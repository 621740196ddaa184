// Memory of the host that the test program's device can work on.
#pragma once

#include <cstddef>

namespace weft::testing {

// While it lives, streams of the program's devices may use the memory, which must be there as long.
// on_host.cc: nothing has to be done; tests/cuda/pinned.cc: page-locks it.
class Pinned {
 public:
  Pinned(void* data, std::size_t bytes);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  void* const data_;
};

}  // namespace weft::testing
