#include "scheduler/peak_bytes.h"

#include <algorithm>
#include <array>

#include "scheduler/buffers.h"

namespace weft::scheduler {
namespace {

constexpr std::int32_t kAnyRank = -1;

// The slots of a rank, summed up by what their size goes by.
struct Footprint {
  std::int64_t fixed = 0;
  std::int64_t per_shard_row = 0;
  std::int64_t per_node_row = 0;
};

Footprint FootprintOf(const SlotExtents& extents, const PlanMatrix& matrix, Role role) {
  Footprint sum;
  for (int s = 1; s < kSlotCount; ++s) {
    const Slot slot = static_cast<Slot>(s);
    // Kept; or owned and fetched, by ranks that have less: the owner has a gradient in its place.
    if (slot == Slot::kWeight) continue;
    const std::int64_t row_bytes =
        matrix.cols * static_cast<std::int64_t>(SizeOf(SlotType(matrix, slot)));
    switch (extents.At(slot, role)) {
      case Extent::kNothing:
        break;
      case Extent::kWhole:
        sum.fixed += matrix.rows * row_bytes;
        break;
      case Extent::kShard:
        sum.per_shard_row += row_bytes;
        break;
      case Extent::kNode:
        sum.per_node_row += row_bytes;
        break;
      case Extent::kNormVectors:
        sum.fixed += matrix.norm_vectors * row_bytes;
        break;
    }
  }
  return sum;
}

std::int64_t MostOfAnyRank(const ProcessGrid& grid, PathKind path, const PlanMatrix& matrix,
                           std::int32_t owner, int reductions) {
  const SlotExtents extents(grid, path, matrix, reductions);
  std::array<Footprint, kRoleCount> footprints;
  for (int r = 0; r < kRoleCount; ++r) {
    footprints[r] = FootprintOf(extents, matrix, static_cast<Role>(r));
  }
  const bool sharded = IsSharded(matrix.layout);
  const bool has_roles = HasOwner(path) && owner != kAnyRank;
  const Role usual = HasOwner(path) && !has_roles ? Role::kOwner : Role::kOther;
  const int column = has_roles ? grid.local_of(owner) : -1;
  const int owner_node = has_roles ? grid.node_of(owner) : 0;
  std::int64_t most = 0;
  for (int node = 0; node < grid.nodes; ++node) {
    // Without shards the nodes are alike, but for the owner's.
    if (!sharded && node > 1 && node != owner_node) continue;
    std::int64_t node_rows = 0;
    std::array<std::int64_t, kRoleCount> most_rows;  // of one rank; -1 where none has the role
    most_rows.fill(-1);
    for (int local = 0; local < grid.ranks_per_node; ++local) {
      const std::int64_t rows = sharded ? ShardRows(matrix, grid.rank_of(node, local)) : 0;
      const bool with_owner = has_roles && node == owner_node;
      const Role role = local == column ? (with_owner ? Role::kOwner : Role::kColumn)
                        : with_owner    ? Role::kNodeMate
                                        : usual;
      node_rows += rows;
      most_rows[static_cast<int>(role)] = std::max(most_rows[static_cast<int>(role)], rows);
    }
    for (int role = 0; role < kRoleCount; ++role) {
      if (most_rows[role] < 0) continue;
      const Footprint& of = footprints[role];
      most = std::max(most,
                      of.fixed + of.per_node_row * node_rows + of.per_shard_row * most_rows[role]);
    }
  }
  return most;
}

// By matrix: what its own collectives in split form need of the scratch, one part on each lane.
std::vector<std::int64_t> ScratchByMatrix(const Plan& plan) {
  std::vector<std::array<std::int64_t, kLaneCount>> parts(plan.matrices.size());
  for (const Op& op : plan.ops) {
    if (op.form != CollectiveForm::kSplit) continue;
    for (std::int32_t m : MatricesOf(plan, op)) {
      const PlanMatrix& matrix = plan.matrices[m];
      std::int64_t& part = parts[m][static_cast<std::size_t>(op.lane)];
      // Of a set the matrix's own.
      const std::int64_t bytes =
          op.set < 0 ? PartBytes(plan, op) : PartBytes(plan, op, matrix.rows * matrix.cols);
      part = std::max(part, bytes);
    }
  }
  std::vector<std::int64_t> sums;
  for (const auto& lanes : parts) {
    std::int64_t& sum = sums.emplace_back(0);
    for (std::int64_t part : lanes) sum += part;
  }
  return sums;
}

}  // namespace

std::int64_t PeakBytesOn(const ProcessGrid& grid, PathKind path, const PlanMatrix& matrix,
                         int reductions) {
  return MostOfAnyRank(grid, path, matrix, kAnyRank, reductions);
}

std::vector<PeakBytes> PeakBytesOf(const Plan& plan) {
  const ProcessGrid& grid = plan.topology.grid;
  const std::vector<std::int64_t> scratch = ScratchByMatrix(plan);
  std::vector<PeakBytes> peaks;
  for (std::size_t m = 0; m < plan.matrices.size(); ++m) {
    const PlanMatrix& matrix = plan.matrices[m];
    const PathKind path = PathOf(plan.topology, plan.strategy, matrix);
    PeakBytes& peak = peaks.emplace_back();
    const int reductions = ReducingPasses(plan, matrix);
    peak.taken = MostOfAnyRank(grid, path, matrix, matrix.owner, reductions) + scratch[m];
    if (path == PathKind::kLocal || AgainstPassThrough(plan.strategy, matrix) != nullptr) continue;
    PlanMatrix other = matrix;
    other.pass_through = !matrix.pass_through;
    peak.alternative =
        PeakBytesOn(grid, PathOf(plan.topology, plan.strategy, other), other, reductions);
  }
  return peaks;
}

}  // namespace weft::scheduler
