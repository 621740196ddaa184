// Events of the host device: each recording makes a new point, so that whoever waits keeps the
// point it began to wait for.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "weft/clock.h"
#include "weft/event.h"

namespace weft::device {

// One recorded place in a stream. Completed once, by the stream's worker.
class Point {
 public:
  void Complete(absl::Status status);

  // Blocks until completed or `stop()` is true; true when completed. `stop` is called with the
  // point's mutex held and re-evaluated after WakeWaiters().
  template <typename Stop>
  bool WaitUnless(Stop stop) {
    std::unique_lock<std::mutex> lock(mutex_);
    done_changed_.wait(lock, [&] { return done_ || stop(); });
    return done_;
  }
  void WakeWaiters();

  // False when `deadline` on `clock` passes first; kNoDeadline waits for ever.
  bool WaitUntil(Clock& clock, Nanos deadline);

  bool done() const;
  // Requires done().
  absl::Status status() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  absl::Status status_;
};

class HostEvent final : public Event {
 public:
  explicit HostEvent(Clock& clock) : clock_(clock) {}

  absl::StatusOr<bool> Query() const override;
  absl::Status Synchronize(absl::Duration timeout) const override;

  // Moves the event to a new point and returns that point.
  std::shared_ptr<Point> Move();
  // The current point; null when the event was never recorded.
  std::shared_ptr<Point> point() const;

 private:
  Clock& clock_;
  mutable std::mutex mutex_;
  std::shared_ptr<Point> point_;
};

}  // namespace weft::device
