// Waiting for the device: by asking it at intervals, so that a deadline holds whatever it does.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/status/statusor.h"
#include "weft/clock.h"

namespace weft::device {

// About what a wake-up costs.
inline constexpr Nanos kPollInterval = 50'000;

// Asks `done` (returns StatusOr<bool>) until it says true or fails; false when `deadline` on
// `clock` has passed. One wait is one call of the clock's: that of a clock which stands still ends
// too.
template <typename Done>
absl::StatusOr<bool> Poll(Clock& clock, Nanos deadline, Done done) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    absl::StatusOr<bool> answer = done();
    if (!answer.ok() || *answer) return answer;
    const Nanos now = clock.Now();
    if (now >= deadline) return false;
    (void)clock.WaitUntil(never, lock, std::min(deadline, now + kPollInterval));
  }
}

}  // namespace weft::device
