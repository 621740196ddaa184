// Which part of a matrix each slot holds on each rank, told from the matrix's path alone: the
// buffers are sized by this, and the validator holds the ops against it.
#pragma once

#include <array>
#include <cstdint>

#include "scheduler/layout.h"
#include "weft/plan.h"

namespace weft::scheduler {

// The way a matrix takes through the plan.
enum class PathKind : std::uint8_t {
  kLocal,        // a world of one rank: no collectives
  kElementwise,  // every rank updates what it holds
  kReplicated,   // every rank runs the rule on the whole matrix
  kGather,       // the same, on shards gathered everywhere
  kOwner,        // one rank runs the rule
  kNodeLocal,    // one rank of each node does
  kLayerwise,    // one rank runs the rule, and collectives are of the world
  // Periodic, of shards: the state stays on the shards, one rank runs NS on updates gathered there.
  kOwnerOfShards,
};
PathKind PathOf(const Topology& topology, Strategy strategy, const PlanMatrix& matrix);
// Strategies that give matrices to ranks.
inline bool HasOwners(Strategy strategy) {
  return strategy == Strategy::kOwner || strategy == Strategy::kNodeLocal ||
         strategy == Strategy::kLayerwise;
}
// Whether one rank of the world, or of each node, is to run the rule, be it in a world of one.
inline bool GetsOwner(const ProcessGrid& grid, Strategy strategy, const PlanMatrix& matrix) {
  if (matrix.layout == Layout::kOwned) return true;
  if (matrix.rule == RuleKind::kElementwise || matrix.pass_through) return false;
  // Where every rank is its node every rank would be an owner.
  if (strategy == Strategy::kNodeLocal) return grid.ranks_per_node > 1 || grid.size() == 1;
  return HasOwners(strategy);
}
// The ranks that can be an owner: under node_local those of the first node, which stand for the
// ranks with their local rank on the others.
inline int OwnerChoices(const ProcessGrid& grid, Strategy strategy) {
  return strategy == Strategy::kNodeLocal ? grid.ranks_per_node : grid.size();
}
// Why the matrix, which says so, cannot pass through; null where it can.
const char* AgainstPassThrough(Strategy strategy, const PlanMatrix& matrix);

// Whether each pass has a gradient of the matrix, which is reduced where there is more than one
// rank.
inline bool EachPassHasGradient(const PlanLimits& limits, const PlanMatrix& matrix) {
  return limits.reduce_each_pass && matrix.gradient != GradientKind::kReduced;
}
// How many of a step's passes reduce the matrix's gradient: each, or one for all of them.
inline int ReducingPasses(const Plan& plan, const PlanMatrix& matrix) {
  const bool each = EachPassHasGradient(plan.limits, matrix) && plan.topology.grid.size() > 1;
  return each ? plan.limits.passes : 1;
}

// One rank of the world, or of each node, runs NS or the caller's rule.
inline bool HasOwner(PathKind path) {
  return path == PathKind::kOwner || path == PathKind::kNodeLocal || path == PathKind::kLayerwise ||
         path == PathKind::kOwnerOfShards;
}
// Every rank has the state of its own rows.
inline bool StateOnShards(PathKind path) {
  return path == PathKind::kGather || path == PathKind::kOwnerOfShards;
}

// Both ops have work in the same steps.
inline bool SameSteps(const Plan& plan, const Op& a, const Op& b) {
  if (a.when != b.when) return false;
  if (a.when == When::kAlways) return true;
  const PlanMatrix& one = plan.matrices[a.matrix];
  const PlanMatrix& other = plan.matrices[b.matrix];
  return one.period == other.period && one.phase == other.phase;
}

enum class Extent : std::uint8_t { kNothing, kWhole, kShard, kNode, kNormVectors };

// Rows of the whole of what a slot holds a part of.
inline std::int64_t WholeRows(const PlanMatrix& matrix, Slot slot) {
  return slot == Slot::kNormSquares ? matrix.norm_vectors : matrix.rows;
}

// Ranks differ only in how they stand to the owner.
enum class Role : std::uint8_t {
  kOther,
  kNodeMate,  // another rank on the owner's node; only where collectives have two levels
  kColumn,    // the owner's local rank on another node; likewise
  kOwner,
};
inline constexpr int kRoleCount = 4;

// True when collectives of the owner path go by intra and inter groups.
inline bool TwoLevel(const ProcessGrid& grid) { return grid.nodes > 1 && grid.ranks_per_node > 1; }

using SlotMask = std::uint32_t;
static_assert(kSlotCount <= 32);
inline SlotMask BitOf(Slot slot) { return static_cast<SlotMask>(1u << static_cast<int>(slot)); }

class SlotExtents {
 public:
  SlotExtents(const Plan& plan, std::int32_t matrix);
  // Of a matrix of any plan, were it to go `path` and be reduced in that many passes.
  SlotExtents(const ProcessGrid& grid, PathKind path, const PlanMatrix& matrix, int reductions);

  Extent At(Slot slot, Role role) const {
    return extents_[static_cast<int>(role)][static_cast<int>(slot)];
  }
  Extent At(Slot slot, int rank) const { return At(slot, RoleOf(rank)); }
  std::int64_t Rows(Slot slot, int rank) const;
  // The slots that a rank holds, be it with no rows.
  SlotMask Held(int rank) const { return held_[static_cast<int>(RoleOf(rank))]; }
  bool HeldAnywhere(Slot slot) const { return held_anywhere_ & BitOf(slot); }
  // Whether the rank runs the rule on the whole matrix as its owner, or its node's.
  bool IsOwner(int rank) const;
  // Rows that the rule works on; 0 on ranks that do not run it.
  std::int64_t RuleRows(int rank) const;

 private:
  Role RoleOf(int rank) const;
  std::int64_t RowsOf(Extent extent, int rank) const;
  void Set(Role role, Slot slot, Extent extent) {
    extents_[static_cast<int>(role)][static_cast<int>(slot)] = extent;
  }
  void SetAll(Slot slot, Extent extent);
  void SetOnOwnersNode(Slot slot, Extent extent);
  void SetBetweenRefreshes();  // of a periodic matrix in shards
  void SetWithOwner();
  void SetHeld();

  ProcessGrid grid_;
  const PlanMatrix* matrix_;
  PathKind path_;
  std::array<std::array<Extent, kSlotCount>, kRoleCount> extents_ = {};
  std::array<SlotMask, kRoleCount> held_ = {};
  SlotMask held_anywhere_ = 0;
};

// Keeps sums of sizes in bytes over all matrices far from overflow. Shapes are not negative.
// Registration holds matrices against the same limits, so that Commit() refuses nothing that
// AddMatrix() took.
inline bool TooLarge(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 40;
  return rows > kMostElements || cols > kMostElements || (rows > 0 && cols > kMostElements / rows);
}
inline constexpr std::int64_t kMostStateBytesPerElement = 1024;

}  // namespace weft::scheduler
