// Keeps a write to a peer that has gone from ending the process.
#pragma once

#include <signal.h>

namespace weft::collectives::gloo {

// gloo writes to its sockets without MSG_NOSIGNAL, so a dead peer raises SIGPIPE, whose default
// ends the process that was to report it. While one of these lives, the thread (and threads it
// starts) gets the error as a return value instead; the process's own handling of the signal is
// untouched.
class QuietPipe {
 public:
  QuietPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~QuietPipe() {
    if (!was_pending_) {
      const timespec now{};
      while (sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  QuietPipe(const QuietPipe&) = delete;
  QuietPipe& operator=(const QuietPipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace weft::collectives::gloo
