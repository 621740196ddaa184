// Buffers that are taken in turn: what whoever gets one next has to wait for.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "scheduler/access.h"
#include "scheduler/buffers.h"
#include "weft/plan.h"

namespace weft::scheduler {

// An op of one of two steps, in the order in which they happen.
struct StepOp {
  std::int32_t step = -1;
  std::int32_t op = -1;
  friend auto operator<=>(const StepOp&, const StepOp&) = default;
};
// The last on each lane: those before it on the lane are implied.
using LastByLane = std::array<StepOp, kLaneCount>;

// The ops of all lanes of a rank in the order of the plan, which each lane keeps.
inline void OpsOfRank(const Plan& plan, int rank, std::vector<std::int32_t>& ops) {
  ops.clear();
  for (const std::vector<std::int32_t>& lane : plan.lanes[rank]) {
    const auto sorted = static_cast<std::ptrdiff_t>(ops.size());
    ops.insert(ops.end(), lane.begin(), lane.end());
    std::inplace_merge(ops.begin(), ops.begin() + sorted, ops.end());
  }
}

// Follows one rank at a time through its ops.
class Turns {
 public:
  explicit Turns(const Plan& plan)
      : plan_(plan), shared_(plan.matrices.size() * kSlotCount, -1), buffers_(plan.buffers) {
    const std::vector<bool> shared = SharedBuffers(plan);
    for (std::size_t m = 0; m < plan.matrices.size(); ++m) {
      for (int s = 1; s < kSlotCount; ++s) {
        const std::int32_t buffer = plan.matrices[m].buffers[s];
        if (buffer >= 0 && shared[buffer]) shared_[m * kSlotCount + s] = buffer;
      }
    }
  }

  void BeginRank(int rank) { rank_ = rank; }

  struct Answer {
    bool stale = false;                  // reads what another occupant has overwritten
    std::int32_t turn = 0;               // counts the occupants of the buffer
    const LastByLane* before = nullptr;  // ops of the occupant before, all of them to be over
  };
  // An op is about to touch a slot. Null `before` where the buffer is not shared.
  Answer Enter(const Access& access) {
    const std::int32_t buffer = SharedBufferOf(access);
    if (buffer < 0) return {};
    Buffer& state = buffers_[buffer];
    const std::int32_t occupant =
        OccupantOf(plan_, access.matrix, static_cast<Slot>(access.resource));
    if (state.rank != rank_) state = {.rank = rank_, .occupant = occupant, .turn = 1};
    if (state.occupant != occupant) {
      if (!access.writes || access.reads) return {.stale = true, .turn = state.turn};
      state.occupant = occupant;
      ++state.turn;
      state.before = state.now;
      state.now = {};
    }
    return {.turn = state.turn, .before = &state.before};
  }
  // Of the buffer of a slot that has been entered; 0 where it is not shared.
  std::int32_t turn(const Access& access) const {
    const std::int32_t buffer = SharedBufferOf(access);
    return buffer >= 0 ? buffers_[buffer].turn : 0;
  }
  // It has touched it.
  void Leave(const Access& access, const StepOp& op, Lane lane) {
    const std::int32_t buffer = SharedBufferOf(access);
    if (buffer >= 0) buffers_[buffer].now[static_cast<int>(lane)] = op;
  }

 private:
  std::int32_t SharedBufferOf(const Access& access) const {
    if (access.matrix < 0 || access.resource >= kSlotCount) return -1;
    const std::int32_t buffer = shared_[access.matrix * kSlotCount + access.resource];
    if (buffer < 0 || access.resource != static_cast<Resource>(Slot::kWeight)) return buffer;
    return BufferOf(plan_.matrices[access.matrix], Slot::kWeight, rank_);
  }

  struct Buffer {
    int rank = -1;
    std::int32_t occupant = 0;
    std::int32_t turn = 0;
    LastByLane before;
    LastByLane now;
  };

  const Plan& plan_;
  // [matrix * kSlotCount + slot]: its buffer where others have it in turn, else -1. Beside the
  // plan, since every access of every rank looks here.
  std::vector<std::int32_t> shared_;
  std::vector<Buffer> buffers_;
  int rank_ = -1;
};

}  // namespace weft::scheduler
