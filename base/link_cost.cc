#include "base/link_cost.h"

#include <algorithm>

namespace weft::base {

double CollectiveSeconds(Pattern pattern, int ranks, double bytes, const Link& link) {
  if (ranks <= 1) return 0;
  const double hops = ranks - 1;
  const double latency = link.latency_us * 1e-6;
  const double transfer =
      link.gigabytes_per_second > 0 ? bytes / (link.gigabytes_per_second * 1e9) : 0;
  switch (pattern) {
    case Pattern::kRooted:
      return hops * latency + transfer;
    case Pattern::kScattered:
    case Pattern::kParts:
      return hops * latency + transfer * hops / ranks;
    case Pattern::kAllReduce:
      return 2 * (hops * latency + transfer * hops / ranks);
    case Pattern::kBarrier:
      return hops * latency;
  }
  return 0;
}

int RootComplexPasses(Pattern pattern, int ring_passes, int ranks) {
  switch (pattern) {
    case Pattern::kParts:
      return 1;
    case Pattern::kRooted:
      return std::min(ring_passes, ranks - 1);  // the chain is not closed
    case Pattern::kScattered:
    case Pattern::kAllReduce:
    case Pattern::kBarrier:
      break;
  }
  return ring_passes;
}

}  // namespace weft::base
