#include "weft/grid.h"

#include <numeric>

namespace weft {

std::vector<int> ProcessGrid::World() const {
  std::vector<int> ranks(size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<int> ProcessGrid::Intra(int node) const {
  std::vector<int> ranks(ranks_per_node);
  std::iota(ranks.begin(), ranks.end(), rank_of(node, 0));
  return ranks;
}

std::vector<int> ProcessGrid::Inter(int local) const {
  std::vector<int> ranks(nodes);
  for (int node = 0; node < nodes; ++node) ranks[node] = rank_of(node, local);
  return ranks;
}

}  // namespace weft
