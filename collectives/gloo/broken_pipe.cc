#include "collectives/gloo/broken_pipe.h"

#include <cerrno>
#include <ctime>

namespace weft::collectives::gloo {
namespace {

sigset_t OnlyBrokenPipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool IsPending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

BrokenPipeGuard::BrokenPipeGuard() : was_pending_(IsPending()) {
  const sigset_t set = OnlyBrokenPipe();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

BrokenPipeGuard::~BrokenPipeGuard() {
  // One that arose meanwhile would be delivered with the old mask.
  if (!was_pending_ && IsPending()) {
    const sigset_t set = OnlyBrokenPipe();
    const timespec now{};
    while (sigtimedwait(&set, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace weft::collectives::gloo
