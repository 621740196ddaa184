// Topologies that differ in one field each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/topology.h"

namespace weft::testing {

// `topology` once per field, with that field changed to another valid value, under the name that
// base::VisitFields() has for it.
inline std::vector<std::pair<std::string, Topology>> OneFieldChanged(const Topology& topology) {
  std::vector<std::pair<std::string, Topology>> changed;
  const auto other = [&](const char* name) -> Topology& {
    return changed.emplace_back(name, topology).second;
  };
  ++other("nodes").grid.nodes;
  ++other("ranks_per_node").grid.ranks_per_node;
  ++other("nics_per_node").nics_per_node;
  Topology& of_class = other("intra class");
  of_class.intra_class =
      of_class.intra_class == LinkClass::kShm ? LinkClass::kNvlink : LinkClass::kShm;
  other("intra latency_us").intra.latency_us += 0.1;
  other("intra gigabytes_per_second").intra.gigabytes_per_second += 0.1;
  other("inter latency_us").inter.latency_us += 0.1;
  other("inter gigabytes_per_second").inter.gigabytes_per_second += 0.1;
  ++other("root_complexes_per_node").root_complexes_per_node;
  other("root_complex_gigabytes_per_second").root_complex_gigabytes_per_second += 0.1;
  return changed;
}

}  // namespace weft::testing
