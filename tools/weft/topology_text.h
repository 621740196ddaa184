// Topologies for people.
#pragma once

#include <string>

#include "weft/topology.h"

namespace weft::tool {

// "nvlink, 160 GB/s, 3.40 us"; "not modelled" where nothing inside a node takes time.
std::string IntraText(const Topology& topology);
// "1 NIC per node, 24.0 GB/s each, 9.60 us"; "not modelled" where NICs take no time.
std::string InterText(const Topology& topology);
// "2 per node, 40.0 GB/s each"; "no limit".
std::string RootComplexText(const Topology& topology);

}  // namespace weft::tool
