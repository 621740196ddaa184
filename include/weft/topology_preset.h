// Topologies of well-known nodes, for plans of machines that are not at hand.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "weft/topology.h"

#pragma GCC visibility push(default)
namespace weft {

// docs/topology.md says where each number comes from. They are expectations of large messages, not
// measurements of your machine.
struct TopologyPreset {
  std::string_view name;         // "h100-nvlink"
  std::string_view description;  // one line
  Topology node;                 // of one node
};
const std::vector<TopologyPreset>& TopologyPresets();

// `nodes` nodes of that kind. InvalidArgument lists the names for one that is unknown, and says
// what Validate() refuses of `nodes`.
absl::StatusOr<Topology> Preset(std::string_view name, int nodes);

}  // namespace weft
#pragma GCC visibility pop
