#include "tools/weft/topology_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/weft/table.h"

namespace weft::tool {
namespace {

std::string RateText(double gigabytes_per_second) {
  return gigabytes_per_second == 0 ? "infinitely fast" : NumberText(gigabytes_per_second) + " GB/s";
}

std::string LatencyText(const Link& link) { return NumberText(link.latency_us) + " us"; }

}  // namespace

std::string IntraText(const Topology& topology) {
  if (topology.intra == Link{} && topology.root_complex_gigabytes_per_second == 0) {
    return "not modelled";
  }
  return absl::StrCat(std::string(Name(topology.intra_class)), ", ",
                      RateText(topology.intra.gigabytes_per_second), ", ",
                      LatencyText(topology.intra));
}

std::string InterText(const Topology& topology) {
  if (topology.inter == Link{}) return "not modelled";
  const int ranks = topology.grid.ranks_per_node;
  const int nics = topology.nics_per_node == 0 ? ranks : std::min(topology.nics_per_node, ranks);
  return absl::StrCat(nics, nics == 1 ? " NIC" : " NICs", " per node, ",
                      RateText(topology.inter.gigabytes_per_second), " each, ",
                      LatencyText(topology.inter));
}

std::string RootComplexText(const Topology& topology) {
  if (topology.root_complex_gigabytes_per_second == 0) return "no limit";
  return absl::StrCat(std::min(topology.root_complexes_per_node, topology.grid.ranks_per_node),
                      " per node, ", RateText(topology.root_complex_gigabytes_per_second), " each");
}

}  // namespace weft::tool
