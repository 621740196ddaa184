#include "runtime/clock_offset.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/host_id.h"
#include "base/status_macros.h"

namespace weft::runtime {

absl::StatusOr<Nanos> OffsetToRankZero(const Clock& clock, int rank, Communicators& communicators) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> hosts,
                        communicators.ExchangeNumbers({base::HostId()}, "clock"));
  if (std::all_of(hosts.begin(), hosts.end(),
                  [&](std::int64_t host) { return host == hosts[0]; })) {
    return 0;
  }
  constexpr int kRounds = 9;
  std::vector<Nanos> offsets;
  for (int round = 0; round < kRounds; ++round) {
    WEFT_RETURN_IF_ERROR(communicators.Barrier("clock"));
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> times,
                          communicators.ExchangeNumbers({clock.Now()}, "clock"));
    offsets.push_back(times[0] - times[rank]);
  }
  std::nth_element(offsets.begin(), offsets.begin() + kRounds / 2, offsets.end());
  return offsets[kRounds / 2];
}

}  // namespace weft::runtime
