// For programs whose worlds are of GPUs under the fakes.
#include "tests/support/fake_world.h"
#include "tests/support/world.h"

namespace weft::testing {

void RunWorld(const WorldOptions& options, const std::function<void(Rank)>& body) {
  RunFakeWorld(options, body);
}

void Blocking(const std::function<void()>& wait) {
  const fakes::Blocked blocked;
  wait();
}

}  // namespace weft::testing
