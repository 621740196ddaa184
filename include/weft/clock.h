// Time as an argument. Everything in Weft that reads time or waits with a deadline does it through
// a Clock, so that tests can move time by hand and a trace has one time base.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#pragma GCC visibility push(default)
namespace weft {

// Nanoseconds on the clock's own monotonic axis (not wall time).
using Nanos = std::int64_t;

// Thread-safe: every member may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;

  virtual Nanos Now() const = 0;

  // Atomically releases `lock` and blocks until `cv` is notified or Now() >= deadline, like
  // std::condition_variable::wait_until: wake-ups may be spurious, so callers loop on their own
  // condition. Returns false when the deadline has passed.
  virtual bool WaitUntil(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
                         Nanos deadline) = 0;

  // The process-wide monotonic clock (CLOCK_MONOTONIC). Never destroyed.
  static Clock& Steady();
};

// A clock that moves only when told to. Waiters are woken within about a millisecond of real time
// after Advance() has passed their deadline.
class ManualClock final : public Clock {
 public:
  Nanos Now() const override;
  bool WaitUntil(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
                 Nanos deadline) override;

  // Requires delta >= 0.
  void Advance(Nanos delta);

 private:
  mutable std::mutex mutex_;
  Nanos now_ = 0;
};

}  // namespace weft
#pragma GCC visibility pop
