#include "base/utc.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace weft::base {

std::string UtcNow() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
}

}  // namespace weft::base
