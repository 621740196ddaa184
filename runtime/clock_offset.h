// One time base for all ranks' traces.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/communicators.h"
#include "weft/clock.h"

namespace weft::runtime {

// Collective. What to add to this rank's clock to get rank 0's: 0 for ranks that share a host (and
// so its monotonic clock), otherwise estimated from moments at which all ranks left a barrier.
absl::StatusOr<Nanos> OffsetToRankZero(const Clock& clock, int rank, Communicators& communicators);

}  // namespace weft::runtime
