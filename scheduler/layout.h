// How layouts spread the rows of a matrix over a grid.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/plan.h"

namespace weft::scheduler {

// Ranks hold blocks of its rows.
inline bool IsSharded(Layout layout) {
  return layout == Layout::kSharded || layout == Layout::kNodeSharded;
}

// Every node has them all.
inline bool HasReplicas(const PlanMatrix& matrix) { return matrix.layout == Layout::kNodeSharded; }

// How many blocks there are.
inline int ShardCount(const ProcessGrid& grid, Layout layout) {
  return layout == Layout::kNodeSharded ? grid.ranks_per_node : grid.size();
}

// Which of them a rank holds.
inline int ShardOf(const PlanMatrix& matrix, int rank) {
  return rank % static_cast<int>(matrix.shard_rows.size());
}

// Whether the blocks of `ranks` follow one another.
bool HoldRowsInOrder(const PlanMatrix& matrix, const std::vector<int>& ranks);
// Whether they are all of the matrix, each once and in order.
bool HoldAllRows(const PlanMatrix& matrix, const std::vector<int>& ranks);
// Whether they are all the same one.
bool AreReplicas(const PlanMatrix& matrix, const std::vector<int>& ranks);

// Sum of the rows of the ranks of `node`.
std::int64_t NodeRows(const ProcessGrid& grid, const PlanMatrix& matrix, int node);

// A node_sharded matrix on a grid without both levels becomes what it comes to there: sharded on
// one node, else replicated.
void Simplify(const ProcessGrid& grid, PlanMatrix& matrix);

}  // namespace weft::scheduler
