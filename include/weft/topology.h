// The machine Weft runs on, as far as plans and emulated links care.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "weft/grid.h"

#pragma GCC visibility push(default)
namespace weft {

// A link in the alpha-beta model: time = latency + bytes / bandwidth, per direction.
struct Link {
  double latency_us = 0;
  double gigabytes_per_second = 0;  // 10^9 bytes; 0 = infinitely fast
  friend bool operator==(const Link&, const Link&) = default;
};

// What joins the ranks of a node. It decides which traffic inside a node passes the root complexes;
// all traffic between nodes does, whatever the class.
enum class LinkClass : std::uint8_t {
  kPcie,        // "pcie": PCIe through the root complex; all of it passes
  kPcieSwitch,  // "pcie-switch": a PCIe switch below each root complex; only what goes from one
                // root complex to another passes
  kNvlink,      // "nvlink": a fabric of its own; nothing passes
  kShm,         // "shm": staged in host memory; all of it passes
};
std::string_view Name(LinkClass link_class);

struct Topology {
  ProcessGrid grid;
  // Each rank's port to the ranks of its node, and each NIC (not each node) to the other nodes.
  Link intra;
  Link inter;
  // Ranks with equal (local rank mod nics_per_node) share a NIC. 0 means one per rank; more than
  // ranks are of no use.
  int nics_per_node = 0;

  LinkClass intra_class = LinkClass::kPcie;
  // The ranks of a node in ascending order are split over its root complexes, as evenly as whole
  // ranks can be: local rank r is below root complex r * root_complexes_per_node / ranks_per_node.
  // More than ranks are of no use.
  int root_complexes_per_node = 1;
  // What one root complex carries to and from host memory, all ranks below it together, in 10^9
  // bytes per second and direction; 0 = no limit.
  double root_complex_gigabytes_per_second = 0;

  friend bool operator==(const Topology&, const Topology&) = default;
};

// The largest world that anything in Weft accepts.
inline constexpr int kMostRanks = 65536;

// InvalidArgument, naming the field, for extents below 1, more than kMostRanks ranks, a negative
// number of NICs, fewer than 1 root complex, more than kMostRanks of either, a link class that
// names nothing, and links that the alpha-beta model cannot compute with: latencies must lie in 0
// to 1e8 us, bandwidths be 0 or lie in 1e-4 to 1e9 GB/s.
absl::Status Validate(const Topology& topology);

// A part of a node that the traffic of several ranks shares: what costs and emulated
// links take for one queue.
struct SharedResource {
  enum class Kind : std::uint8_t { kRootComplex, kNic };
  Kind kind = Kind::kNic;
  std::string name;        // "node 0 root complex 1", "node 2 nic 0"
  std::vector<int> ranks;  // world ranks that share it, ascending; never empty
  Link link;               // of a root complex: no latency
  friend bool operator==(const SharedResource&, const SharedResource&) = default;
};

// Node by node, its root complexes (none where they have no limit) and then its NICs. `topology`
// must pass Validate().
std::vector<SharedResource> SharedResources(const Topology& topology);

// How a collective uses a shared resource.
struct ResourceUse {
  int resource = 0;  // index into SharedResources()
  // Times that what one member's port carries passes it. A ring that leaves a root complex or a NIC
  // and comes back passes once; where the hops between members pass, each member adds one.
  int passes = 0;
  friend bool operator==(const ResourceUse&, const ResourceUse&) = default;
};

// What a collective among `ranks` (distinct world ranks of the grid) passes, in ascending order of
// `resource`:
// - the NICs of its members, where it spans nodes;
// - the root complexes of its members, where they have a limit, and the link class is pcie or shm,
//   or the collective spans nodes, or the class is pcie-switch and the node's members are below
//   several root complexes.
// Nothing for fewer than two ranks. What passes between two ranks is the collective among them.
// `topology` must pass Validate(). O(ranks log ranks).
std::vector<ResourceUse> ResourcesOf(const Topology& topology, const std::vector<int>& ranks);

}  // namespace weft
#pragma GCC visibility pop
