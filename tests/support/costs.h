// A cost model in which a second is a FLOP, so that owners are balanced by FLOPs alone and nothing
// pays as a batch.
#pragma once

#include <memory>

#include "weft/cost_model.h"

namespace weft::testing {

inline std::shared_ptr<const CostModel> FlopsAsSeconds(const Topology& topology) {
  return std::make_shared<const CostModel>(
      topology, AnalyticRates{.flops_per_second = 1, .launch_seconds = 0});
}

}  // namespace weft::testing
