// A strategy on a layout, as tests go through them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "weft/grid.h"
#include "weft/plan_kinds.h"

namespace weft::testing {

struct Way {
  Strategy strategy;
  Layout layout;
};

using WayOnGrid = std::tuple<ProcessGrid, Way, GradientKind>;

// "2x2_owner_sharded_local".
inline std::string NameOfWayOnGrid(const ::testing::TestParamInfo<WayOnGrid>& tested) {
  const auto& [grid, way, kind] = tested.param;
  return std::to_string(grid.nodes) + "x" + std::to_string(grid.ranks_per_node) + "_" +
         std::string(Name(way.strategy)) + "_" + std::string(Name(way.layout)) + "_" +
         std::string(Name(kind));
}

}  // namespace weft::testing
