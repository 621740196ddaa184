// Topologies as JSON.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "weft/topology.h"

#pragma GCC visibility push(default)
namespace weft {

// {"nodes": 2, "ranks_per_node": 2, "nics_per_node": 1,
//  "intra": {"latency_us": 10, "gigabytes_per_second": 12, "class": "pcie"},
//  "inter": {"latency_us": 20, "gigabytes_per_second": 3},
//  "root_complexes": {"per_node": 1, "gigabytes_per_second": 16}}
// "class" is "pcie", "pcie-switch", "nvlink" or "shm". All but nodes and ranks_per_node may be left
// out. The "topology" of a plan's JSON is such a text. InvalidArgument names the field; unknown
// fields and fields given twice are refused, and what Validate() refuses.
absl::StatusOr<Topology> ParseTopology(std::string_view json);
// The same from a regular file; NotFound if there is none.
absl::StatusOr<Topology> ReadTopology(const std::string& path);

// Such a text with every field; ParseTopology() gives back a topology that passes Validate().
std::string TopologyToJson(const Topology& topology);

}  // namespace weft
#pragma GCC visibility pop
