// A topology as the JSON that ParseTopology() reads.
#pragma once

#include <nlohmann/json.hpp>

#include "weft/topology.h"

namespace weft::scheduler {

nlohmann::ordered_json ToJson(const Topology& topology);

}  // namespace weft::scheduler
