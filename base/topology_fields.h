// Every field of a topology, in one place.
#pragma once

#include <string_view>

#include "weft/topology.h"

namespace weft::base {

// Calls visit(name, value) for each: int, double or std::string_view. The structured bindings do
// not compile when a struct gets a field that is not named here.
template <typename Visitor>
void VisitFields(const Topology& topology, Visitor&& visit) {
  const auto& [grid, intra, inter, nics_per_node, intra_class, root_complexes_per_node,
               root_complex_gigabytes_per_second] = topology;
  const auto& [nodes, ranks_per_node] = grid;
  const auto& [intra_latency_us, intra_gigabytes_per_second] = intra;
  const auto& [inter_latency_us, inter_gigabytes_per_second] = inter;
  visit("nodes", nodes);
  visit("ranks_per_node", ranks_per_node);
  visit("nics_per_node", nics_per_node);
  visit("intra class", Name(intra_class));
  visit("intra latency_us", intra_latency_us);
  visit("intra gigabytes_per_second", intra_gigabytes_per_second);
  visit("inter latency_us", inter_latency_us);
  visit("inter gigabytes_per_second", inter_gigabytes_per_second);
  visit("root_complexes_per_node", root_complexes_per_node);
  visit("root_complex_gigabytes_per_second", root_complex_gigabytes_per_second);
}

}  // namespace weft::base
