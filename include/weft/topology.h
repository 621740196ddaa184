// The machine Weft runs on, as far as plans and emulated links care.
#pragma once

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

}  // namespace weft
