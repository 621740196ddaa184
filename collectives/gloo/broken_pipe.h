// Keeps a write to a connection that the peer has closed from ending the process: gloo does not ask
// the system to leave out the signal.
#pragma once

#include <signal.h>

namespace weft::collectives::gloo {

// For the life of this object, the calling thread gets no SIGPIPE; the process's own handling of it
// is left alone. Threads created meanwhile inherit this for good.
class BrokenPipeGuard {
 public:
  BrokenPipeGuard();
  ~BrokenPipeGuard();
  BrokenPipeGuard(const BrokenPipeGuard&) = delete;
  BrokenPipeGuard& operator=(const BrokenPipeGuard&) = delete;

 private:
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace weft::collectives::gloo
