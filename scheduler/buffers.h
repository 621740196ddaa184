// Which memory stands behind the slots of a rank, and who has it when.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "scheduler/slots.h"
#include "weft/plan.h"
#include "weft/plan_cost.h"

namespace weft::scheduler {

// The set of matrices that lie side by side in the buffer of a slot; -1 for none. Those of an
// exchange do where it reduces them.
inline std::int32_t SetOf(const PlanMatrix& matrix, Slot slot) {
  if (slot == Slot::kNormSquares) return matrix.norm_set;
  if (slot == Slot::kUpdate || slot == Slot::kDirection) return matrix.batch;
  const bool reduced =
      slot == Slot::kGradient || slot == Slot::kReducedGradient || slot == Slot::kPassGradient;
  return matrix.exchange >= 0 && reduced ? matrix.exchange : matrix.bucket;
}
// The set that an op of the matrix handles at once; -1: the matrix alone.
inline std::int32_t SetOf(const PlanMatrix& matrix, OpKind kind, Slot target) {
  if (target == Slot::kNormSquares) return matrix.norm_set;
  if (kind == OpKind::kOrthogonalize || kind == OpKind::kRowNorm) return matrix.batch;
  return IsCollective(kind) && matrix.exchange >= 0 ? matrix.exchange : matrix.bucket;
}

// The buffer behind a slot on a rank; -1 for none. A rank that keeps the weight has it in memory of
// its own.
inline std::int32_t BufferOf(const PlanMatrix& matrix, Slot slot, int rank) {
  const bool kept =
      slot == Slot::kWeight && (matrix.layout != Layout::kOwned || matrix.owner == rank);
  return kept ? -1 : matrix.buffers[static_cast<std::size_t>(slot)];
}

// Names what has a buffer at a time: a set, or a matrix alone.
inline std::int32_t OccupantOf(const Plan& plan, std::int32_t matrix, Slot slot) {
  const std::int32_t set = SetOf(plan.matrices[matrix], slot);
  return set >= 0 ? set : -1 - matrix;
}

class BufferSizes {
 public:
  explicit BufferSizes(const Plan& plan);

  RankBuffers Of(int rank) const;
  // Sum of all buffers of a rank, scratch included.
  std::int64_t Total(int rank);
  // The matrix whose slots take most of the rank's buffers.
  std::int32_t Largest(int rank) const;

 private:
  // A slot that some rank holds in a buffer.
  struct Held {
    std::int32_t matrix;
    Slot slot;
    std::int64_t row_bytes;
  };
  std::int64_t BytesOf(const Held& held, int rank) const {
    if (BufferOf(plan_.matrices[held.matrix], held.slot, rank) < 0) return 0;
    return extents_[held.matrix].Rows(held.slot, rank) * held.row_bytes;
  }
  // Calls visit(Held, bytes) for the slots that the rank may hold, those of a set in its order.
  template <typename Visit>
  void ForEachHeld(int rank, const Visit& visit) const;

  const Plan& plan_;
  std::vector<SlotExtents> extents_;
  std::array<std::int64_t, kLaneCount> scratch_ = {};
  std::int64_t all_scratch_ = 0;
  // Most slots are the owner's alone: a walk over all of them per rank would be one over the world.
  std::vector<Held> on_all_;
  std::vector<std::vector<Held>> on_node_;    // by node
  std::vector<std::vector<Held>> on_column_;  // by local rank
  std::vector<std::vector<Held>> on_owner_;   // by rank
  std::vector<std::int64_t> bytes_;
  std::vector<std::int64_t> filled_;
};

// Which of `count` elements a piece carries.
struct PieceRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
PieceRange PieceOf(std::int64_t count, const Op& op);

// A part of a collective in split form, as its members hold it at most.
std::int64_t PartBytes(const Plan& plan, const Op& op);
// The same, were it to carry `elements`.
std::int64_t PartBytes(const Plan& plan, const Op& op, std::int64_t elements);

// By buffer: more than one occupant takes it in turn.
std::vector<bool> SharedBuffers(const Plan& plan);

}  // namespace weft::scheduler
