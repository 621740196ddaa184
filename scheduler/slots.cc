#include "scheduler/slots.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "scheduler/access.h"
#include "scheduler/buffers.h"
#include "weft/plan_cost.h"

namespace weft::scheduler {

PathKind PathOf(const Topology& topology, Strategy strategy, const PlanMatrix& matrix) {
  if (topology.grid.size() == 1) return PathKind::kLocal;
  if (matrix.layout == Layout::kOwned) return PathKind::kOwner;
  if (matrix.rule == RuleKind::kElementwise) return PathKind::kElementwise;
  const bool shards = IsSharded(matrix.layout) && matrix.period > 1;
  const PathKind with_owner = shards ? PathKind::kOwnerOfShards : PathKind::kOwner;
  if (strategy == Strategy::kOwner && !matrix.pass_through) return with_owner;
  if (strategy == Strategy::kLayerwise) return PathKind::kLayerwise;
  if (strategy == Strategy::kNodeLocal && topology.grid.ranks_per_node > 1) {
    return topology.grid.nodes > 1 ? PathKind::kNodeLocal : with_owner;
  }
  return IsSharded(matrix.layout) ? PathKind::kGather : PathKind::kReplicated;
}

const char* AgainstPassThrough(Strategy strategy, const PlanMatrix& matrix) {
  if (strategy != Strategy::kOwner) return "only strategy owner has another path for it";
  if (matrix.layout == Layout::kOwned) return "it is owned, so that no other rank has its weight";
  if (matrix.rule == RuleKind::kElementwise) return "its rule is element-wise and has no owner";
  return nullptr;
}

SlotExtents::SlotExtents(const Plan& plan, std::int32_t matrix)
    : SlotExtents(plan.topology.grid, PathOf(plan.topology, plan.strategy, plan.matrices[matrix]),
                  plan.matrices[matrix], ReducingPasses(plan, plan.matrices[matrix])) {}

SlotExtents::SlotExtents(const ProcessGrid& grid, PathKind path, const PlanMatrix& matrix,
                         int reductions)
    : grid_(grid), matrix_(&matrix), path_(path) {
  const bool sharded = IsSharded(matrix_->layout) && grid_.size() > 1;
  const bool local = matrix_->gradient == GradientKind::kLocal;
  const bool reduced = matrix_->gradient == GradientKind::kReduced;
  const bool muon = matrix_->rule == RuleKind::kMuon;
  const bool custom = matrix_->rule == RuleKind::kCustom;
  const Extent own = sharded ? Extent::kShard : Extent::kWhole;

  SetAll(Slot::kWeight, own);
  // Where nobody else reads it:
  if (HasOwner(path_) && reduced && !sharded) {
    Set(Role::kOwner, Slot::kGradient, Extent::kWhole);
    if (path_ == PathKind::kNodeLocal) Set(Role::kColumn, Slot::kGradient, Extent::kWhole);
  } else if (path_ == PathKind::kOwner && reduced && HasReplicas(*matrix_)) {
    SetOnOwnersNode(Slot::kGradient, Extent::kShard);
  } else {
    SetAll(Slot::kGradient, local ? Extent::kWhole : own);
  }
  const bool reduces_everywhere = !HasOwner(path_) || path_ == PathKind::kOwnerOfShards;
  if (reduces_everywhere && path_ != PathKind::kLocal && !reduced) {
    SetAll(Slot::kReducedGradient, own);
  }
  switch (path_) {
    case PathKind::kElementwise:
      break;
    case PathKind::kLocal:
    case PathKind::kReplicated:
      if (muon) {
        SetAll(Slot::kUpdate, Extent::kWhole);
        SetAll(Slot::kDirection, Extent::kWhole);
      }
      break;
    case PathKind::kGather:
      if (muon) {
        SetAll(Slot::kUpdate, Extent::kShard);
        SetAll(Slot::kWholeUpdate, Extent::kWhole);
        SetAll(Slot::kDirection, Extent::kWhole);
        if (matrix_->period > 1) SetBetweenRefreshes();
      }
      if (custom) {
        SetAll(Slot::kWholeGradient, Extent::kWhole);
        SetAll(Slot::kWholeWeight, Extent::kWhole);
      }
      break;
    case PathKind::kOwnerOfShards:
      SetAll(Slot::kUpdate, Extent::kShard);
      SetBetweenRefreshes();
      Set(Role::kOwner, Slot::kWholeUpdate, Extent::kWhole);
      Set(Role::kOwner, Slot::kDirection, Extent::kWhole);
      if (!TwoLevel(grid_) || HasReplicas(*matrix_)) break;
      for (const Role role : {Role::kOwner, Role::kColumn}) {
        Set(role, Slot::kNodeUpdate, Extent::kNode);
        Set(role, Slot::kNodeDirection, Extent::kNode);
      }
      break;
    case PathKind::kOwner:
    case PathKind::kNodeLocal:
    case PathKind::kLayerwise:
      SetWithOwner();
      break;
  }
  if (reductions > 1) {
    for (auto& role : extents_) {
      role[static_cast<int>(Slot::kPassGradient)] = role[static_cast<int>(Slot::kReducedGradient)];
    }
  }
  SetHeld();
}

void SlotExtents::SetWithOwner() {
  const bool sharded = IsSharded(matrix_->layout);
  const bool local = matrix_->gradient == GradientKind::kLocal;
  const bool replicas = HasReplicas(*matrix_);
  const bool one = path_ != PathKind::kNodeLocal;
  const bool levels = TwoLevel(grid_) && path_ != PathKind::kLayerwise;
  const auto at_owner = [&](Slot slot) {
    Set(Role::kOwner, slot, Extent::kWhole);
    if (!one) Set(Role::kColumn, slot, Extent::kWhole);
  };
  // The owner is the root of its own node too.
  const auto at_node_roots = [&](Slot slot, Extent extent) {
    if (!levels) return;
    Set(Role::kOwner, slot, extent);
    Set(Role::kColumn, slot, extent);
  };
  if (local || sharded) at_owner(Slot::kReducedGradient);
  if (local) {
    at_node_roots(Slot::kNodeGradient, Extent::kWhole);
  } else if (sharded && !replicas) {
    at_node_roots(Slot::kNodeGradient, Extent::kNode);
  } else if (matrix_->gradient == GradientKind::kReplica && one) {
    SetOnOwnersNode(Slot::kNodeGradient, Extent::kShard);
  } else if (matrix_->gradient == GradientKind::kReplica) {
    SetAll(Slot::kNodeGradient, Extent::kShard);
  }
  if (matrix_->layout == Layout::kReplicated && matrix_->bucket >= 0) {
    SetAll(Slot::kPackedWeight, Extent::kWhole);
  }
  if (matrix_->rule == RuleKind::kMuon) {
    at_owner(Slot::kUpdate);
    at_owner(Slot::kDirection);
    if (sharded) {
      if (one && !replicas) at_node_roots(Slot::kNodeDirection, Extent::kNode);
      SetAll(Slot::kShardDirection, Extent::kShard);
    }
  }
  if (matrix_->rule == RuleKind::kCustom && sharded) {
    at_owner(Slot::kWholeWeight);
    if (!replicas) at_node_roots(Slot::kNodeWeight, Extent::kNode);
  }
}

void SlotExtents::SetOnOwnersNode(Slot slot, Extent extent) {
  Set(Role::kOwner, slot, extent);
  Set(Role::kNodeMate, slot, extent);
}

void SlotExtents::SetBetweenRefreshes() {
  SetAll(Slot::kShardDirection, Extent::kShard);
  if (matrix_->norm_vectors > 0) SetAll(Slot::kNormSquares, Extent::kNormVectors);
}

void SlotExtents::SetAll(Slot slot, Extent extent) {
  for (auto& role : extents_) role[static_cast<int>(slot)] = extent;
}

Role SlotExtents::RoleOf(int rank) const {
  if (!HasOwner(path_)) return Role::kOther;
  if (rank == matrix_->owner) return Role::kOwner;
  if (grid_.local_of(rank) == grid_.local_of(matrix_->owner)) return Role::kColumn;
  return grid_.node_of(rank) == grid_.node_of(matrix_->owner) ? Role::kNodeMate : Role::kOther;
}

bool SlotExtents::IsOwner(int rank) const {
  return rank == matrix_->owner || (path_ == PathKind::kNodeLocal && RoleOf(rank) == Role::kColumn);
}

std::int64_t SlotExtents::RowsOf(Extent extent, int rank) const {
  switch (extent) {
    case Extent::kNothing:
      return 0;
    case Extent::kWhole:
      return matrix_->rows;
    case Extent::kShard:
      return ShardRows(*matrix_, rank);
    case Extent::kNode:
      return NodeRows(grid_, *matrix_, grid_.node_of(rank));
    case Extent::kNormVectors:
      return matrix_->norm_vectors;
  }
  return 0;
}

void SlotExtents::SetHeld() {
  for (int role = 0; role < kRoleCount; ++role) {
    for (int s = 0; s < kSlotCount; ++s) {
      if (extents_[role][s] != Extent::kNothing) held_[role] |= BitOf(static_cast<Slot>(s));
    }
    held_anywhere_ |= held_[role];
  }
}

std::int64_t SlotExtents::Rows(Slot slot, int rank) const { return RowsOf(At(slot, rank), rank); }

std::int64_t SlotExtents::RuleRows(int rank) const {
  switch (path_) {
    case PathKind::kLocal:
    case PathKind::kReplicated:
      return matrix_->rows;
    case PathKind::kElementwise:
      return Rows(Slot::kWeight, rank);
    case PathKind::kGather:
      // Momentum lives on the shard; a custom rule keeps its state whole.
      return matrix_->rule == RuleKind::kMuon ? ShardRows(*matrix_, rank) : matrix_->rows;
    case PathKind::kOwnerOfShards:
      return ShardRows(*matrix_, rank);
    case PathKind::kOwner:
    case PathKind::kNodeLocal:
    case PathKind::kLayerwise:
      return IsOwner(rank) ? matrix_->rows : 0;
  }
  return 0;
}

}  // namespace weft::scheduler

namespace weft {

using scheduler::SlotExtents;

std::vector<std::int64_t> DefaultShardRows(std::int64_t rows, int ranks) {
  WEFT_CHECK(rows >= 0 && ranks >= 1) << "rows " << rows << ", ranks " << ranks;
  const std::int64_t block = rows / ranks + (rows % ranks != 0);
  std::vector<std::int64_t> shards(ranks);
  std::int64_t left = rows;
  for (std::int64_t& shard : shards) {
    shard = std::min(block, left);
    left -= shard;
  }
  return shards;
}

std::int64_t SlotRows(const Plan& plan, std::int32_t matrix, Slot slot, int rank) {
  return SlotExtents(plan, matrix).Rows(slot, rank);
}

DType SlotType(const PlanMatrix& matrix, Slot slot) {
  switch (slot) {
    case Slot::kGradient:
    case Slot::kNodeGradient:
    case Slot::kReducedGradient:
    case Slot::kPassGradient:
    case Slot::kWholeGradient:
    case Slot::kWeight:
    case Slot::kNodeWeight:
    case Slot::kWholeWeight:
    case Slot::kPackedWeight:
      return matrix.dtype;
    case Slot::kNone:
    case Slot::kUpdate:
    case Slot::kWholeUpdate:
    case Slot::kDirection:
    case Slot::kNodeDirection:
    case Slot::kShardDirection:
    case Slot::kNodeUpdate:
    case Slot::kNormSquares:
      break;
  }
  return DType::kF32;
}

absl::Span<const std::int32_t> MatricesOf(const Plan& plan, const Op& op) {
  if (op.set >= 0) return plan.sets[op.set];
  return {&op.matrix, op.matrix >= 0 ? std::size_t{1} : std::size_t{0}};
}

std::int64_t PayloadBytes(const Plan& plan, const Op& op, int rank) {
  const std::vector<std::vector<int>>& parts = plan.groups[op.group].parts;
  if (op.kind == OpKind::kVerdict || op.set >= 0 || parts.size() == 1) return op.bytes;
  const PlanMatrix& matrix = plan.matrices[op.matrix];
  const ProcessGrid& grid = plan.topology.grid;
  const bool cuts = op.kind == OpKind::kGather || op.kind == OpKind::kScatter;
  const bool in_node = grid.node_of(parts[0][0]) == grid.node_of(parts[0].back());
  if (in_node && !cuts) return op.bytes;
  // Of the node, or of the replicas.
  const std::int64_t rows =
      in_node ? scheduler::NodeRows(grid, matrix, grid.node_of(rank)) : ShardRows(matrix, rank);
  return scheduler::PieceOf(rows * matrix.cols, op).count *
         static_cast<std::int64_t>(SizeOf(SlotType(matrix, op.source)));
}

RankCost CostOfRank(const Plan& plan, int rank) {
  RankCost cost;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    for (std::int32_t index : plan.lanes[rank][lane]) {
      const Op& op = plan.ops[index];
      cost.flops += op.flops;
      if (IsCollective(op.kind)) cost.lane_bytes[lane] += PayloadBytes(plan, op, rank);
    }
  }
  for (std::size_t i = 0; i < plan.matrices.size(); ++i) {
    const PlanMatrix& matrix = plan.matrices[i];
    const SlotExtents extents(plan, static_cast<std::int32_t>(i));
    cost.owned += extents.IsOwner(rank);
    cost.state_bytes += extents.RuleRows(rank) * matrix.cols * matrix.state_bytes_per_element;
  }
  cost.buffer_bytes = scheduler::BufferSizes(plan).Total(rank);
  return cost;
}

}  // namespace weft
