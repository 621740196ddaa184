#include "weft/clock.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace weft {
namespace {

class SteadyClock final : public Clock {
 public:
  Nanos Now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  bool WaitUntil(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
                 Nanos deadline) override {
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline)};
    return cv.wait_until(lock, until) == std::cv_status::no_timeout;
  }
};

}  // namespace

Clock& Clock::Steady() {
  static SteadyClock* const clock = new SteadyClock;
  return *clock;
}

Nanos ManualClock::Now() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return now_;
}

bool ManualClock::WaitUntil(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
                            Nanos deadline) {
  // Advance() cannot notify `cv` without holding the waiter's mutex, whose order against the
  // caller's other locks is unknown here; a short real wait is the simple way out of that.
  if (Now() >= deadline) return false;
  cv.wait_for(lock, std::chrono::milliseconds(1));
  return Now() < deadline;
}

void ManualClock::Advance(Nanos delta) {
  WEFT_CHECK(delta >= 0) << "time does not run backwards";
  const std::lock_guard<std::mutex> lock(mutex_);
  now_ += delta;
}

}  // namespace weft
