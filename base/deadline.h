// Durations as points on a Clock's axis.
#pragma once

#include <limits>

#include "absl/time/time.h"
#include "weft/clock.h"

namespace weft::base {

// Now + timeout, saturating: an infinite timeout is a deadline that never passes.
inline Nanos DeadlineAfter(const Clock& clock, absl::Duration timeout) {
  const Nanos now = clock.Now();
  const Nanos delta = absl::ToInt64Nanoseconds(timeout);
  return delta > std::numeric_limits<Nanos>::max() - now ? std::numeric_limits<Nanos>::max()
                                                         : now + delta;
}

}  // namespace weft::base
