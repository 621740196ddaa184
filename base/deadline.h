// Durations as points on a Clock's axis.
#pragma once

#include <limits>

#include "absl/time/time.h"
#include "weft/clock.h"

namespace weft::base {

inline constexpr Nanos kNoDeadline = std::numeric_limits<Nanos>::max();

// Now + timeout, saturating at kNoDeadline, which an infinite timeout also gives.
inline Nanos DeadlineAfter(const Clock& clock, absl::Duration timeout) {
  const Nanos now = clock.Now();
  const Nanos delta = absl::ToInt64Nanoseconds(timeout);
  return delta > kNoDeadline - now ? kNoDeadline : now + delta;
}

}  // namespace weft::base
