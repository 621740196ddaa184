// A timeout as a place on a clock's axis.
#pragma once

#include <limits>

#include "absl/time/time.h"
#include "weft/clock.h"

namespace weft::device {

inline constexpr Nanos kNoDeadline = std::numeric_limits<Nanos>::max();

// Saturates to kNoDeadline, which also stands for an infinite timeout.
inline Nanos DeadlineAfter(const Clock& clock, absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return kNoDeadline;
  const Nanos span = absl::ToInt64Nanoseconds(timeout);
  const Nanos now = clock.Now();
  if (span > 0 && now > kNoDeadline - span) return kNoDeadline;
  return span <= 0 ? now : now + span;
}

}  // namespace weft::device
