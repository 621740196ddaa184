// The machine Weft runs on, as far as plans and emulated links care.
#pragma once

#include "absl/status/status.h"
#include "weft/grid.h"

namespace weft {

// A link class in the alpha-beta model: time = latency + bytes / bandwidth, per direction.
struct Link {
  double latency_us = 0;
  double gigabytes_per_second = 0;  // 10^9 bytes; 0 = infinitely fast
  friend bool operator==(const Link&, const Link&) = default;
};

struct Topology {
  ProcessGrid grid;
  // Each rank's port to the ranks of its node, and each NIC to the other nodes.
  Link intra;
  Link inter;
  // Ranks with equal (local rank mod nics_per_node) share a NIC. 0 means one per rank.
  int nics_per_node = 0;

  friend bool operator==(const Topology&, const Topology&) = default;
};

// The largest world that anything in Weft accepts.
inline constexpr int kMostRanks = 65536;

// InvalidArgument, naming the field, for extents below 1, more than kMostRanks ranks, a negative
// number of NICs, and links that the alpha-beta model cannot compute with: latencies must lie in 0
// to 1e8 us, bandwidths be 0 or lie in 1e-4 to 1e9 GB/s.
absl::Status Validate(const Topology& topology);

}  // namespace weft
