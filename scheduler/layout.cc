#include "scheduler/layout.h"

#include <algorithm>
#include <cstddef>

namespace weft::scheduler {

bool HoldRowsInOrder(const PlanMatrix& matrix, const std::vector<int>& ranks) {
  const int first = ShardOf(matrix, ranks[0]);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ShardOf(matrix, ranks[i]) != first + static_cast<int>(i)) return false;
  }
  return true;
}

bool HoldAllRows(const PlanMatrix& matrix, const std::vector<int>& ranks) {
  return ranks.size() == matrix.shard_rows.size() && HoldRowsInOrder(matrix, ranks);
}

bool AreReplicas(const PlanMatrix& matrix, const std::vector<int>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return ShardOf(matrix, rank) == ShardOf(matrix, ranks[0]); });
}

std::int64_t NodeRows(const ProcessGrid& grid, const PlanMatrix& matrix, int node) {
  std::int64_t rows = 0;
  for (int local = 0; local < grid.ranks_per_node; ++local) {
    rows += ShardRows(matrix, grid.rank_of(node, local));
  }
  return rows;
}

void Simplify(const ProcessGrid& grid, PlanMatrix& matrix) {
  if (matrix.layout != Layout::kNodeSharded) return;
  const bool replica = matrix.gradient == GradientKind::kReplica;
  if (grid.nodes == 1) {
    matrix.layout = Layout::kSharded;
    if (replica) matrix.gradient = GradientKind::kReduced;
  } else if (grid.ranks_per_node == 1) {
    matrix.layout = Layout::kReplicated;
    if (replica) matrix.gradient = GradientKind::kLocal;
    matrix.shard_rows.clear();
    matrix.norm_vectors = 0;  // every rank has whole rows
  }
}

}  // namespace weft::scheduler
