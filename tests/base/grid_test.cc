#include "weft/grid.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace weft {
namespace {

RC_GTEST_PROP(ProcessGrid, IntraGroupsPartitionTheWorldAndSoDoInterGroups, ()) {
  const ProcessGrid grid{*rc::gen::inRange(1, 9), *rc::gen::inRange(1, 9)};
  std::multiset<int> by_node, by_local;
  for (int node = 0; node < grid.nodes; ++node) {
    for (int rank : grid.Intra(node)) {
      RC_ASSERT(grid.node_of(rank) == node);
      by_node.insert(rank);
    }
  }
  for (int local = 0; local < grid.ranks_per_node; ++local) {
    for (int rank : grid.Inter(local)) {
      RC_ASSERT(grid.local_of(rank) == local);
      RC_ASSERT(grid.rank_of(grid.node_of(rank), local) == rank);
      by_local.insert(rank);
    }
  }
  const std::vector<int> world = grid.World();
  RC_ASSERT(by_node == std::multiset<int>(world.begin(), world.end()));
  RC_ASSERT(by_local == by_node);
}

}  // namespace
}  // namespace weft
