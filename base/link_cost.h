// The alpha-beta cost of one collective on one class of links: what the local transport emulates
// and the scheduler predicts with. Formulas: ring algorithms as NCCL counts them (nccl-tests,
// PERFORMANCE.md), with (ranks - 1) hops of latency.
#pragma once

#include <cstdint>

#include "weft/topology.h"

namespace weft::base {

enum class Pattern : std::uint8_t {
  kRooted,     // broadcast, reduce: the payload crosses each link once, pipelined
  kScattered,  // all-gather, reduce-scatter: (n - 1) / n of the payload
  kParts,      // gather, scatter: the same, each part to or from the root
  kAllReduce,  // reduce-scatter and all-gather
  kBarrier,    // latency only
};

// Seconds for `ranks` members and a payload of `bytes` (the whole vector, not one rank's share).
// 0 for a group of one or a link that is infinitely fast.
double CollectiveSeconds(Pattern pattern, int ranks, double bytes, const Link& link);

// How often a payload passes a root complex that a ring around the members passes `ring_passes`
// times (docs/adr/0009).
int RootComplexPasses(Pattern pattern, int ring_passes, int ranks);

}  // namespace weft::base
