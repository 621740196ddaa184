// The process grid: which node and which place in its node each rank has.
#pragma once

#include <vector>

#pragma GCC visibility push(default)
namespace weft {

// Ranks are numbered node by node: rank = node * ranks_per_node + local rank. Both extents >= 1,
// their product at most kMostRanks (topology.h), which everything that takes a grid checks.
struct ProcessGrid {
  int nodes = 1;
  int ranks_per_node = 1;

  int size() const { return nodes * ranks_per_node; }
  int node_of(int rank) const { return rank / ranks_per_node; }
  int local_of(int rank) const { return rank % ranks_per_node; }
  int rank_of(int node, int local) const { return node * ranks_per_node + local; }

  // World ranks in ascending order: everybody; the ranks of one node; the ranks with one local
  // rank, one per node (these "inter groups" are disjoint).
  std::vector<int> World() const;
  std::vector<int> Intra(int node) const;
  std::vector<int> Inter(int local) const;

  friend bool operator==(const ProcessGrid&, const ProcessGrid&) = default;
};

}  // namespace weft
#pragma GCC visibility pop
