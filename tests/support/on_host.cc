// For programs whose worlds are of host devices.
#include "tests/support/pinned.h"
#include "tests/support/world.h"

namespace weft::testing {

Pinned::Pinned(void* data, std::size_t) : data_(data) {}
Pinned::~Pinned() { (void)data_; }

void RunWorld(const WorldOptions& options, const std::function<void(Rank)>& body) {
  RunLocalWorld(options, body);
}

void Blocking(const std::function<void()>& wait) { wait(); }

}  // namespace weft::testing
