// Buffers that are taken in turn: what whoever gets one next has to wait for.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/rank_ops.h"

namespace weft::scheduler {

// Follows one rank at a time through its ops.
class Turns {
 public:
  explicit Turns(std::int32_t buffers) : buffers_(buffers) {}

  void BeginRank(int rank) { rank_ = rank; }

  struct Answer {
    bool stale = false;                // reads what another occupant has overwritten
    std::int32_t turn = 0;             // counts the occupants of the buffer
    const Frontier* before = nullptr;  // ops of the occupant before, all of them to be over
  };
  // An op is about to touch a slot. Null `before` where the buffer is not shared.
  Answer Enter(const Touch& touch) {
    if (!Shared(touch)) return {};
    Buffer& state = buffers_[touch.buffer];
    if (state.rank != rank_) state = {.rank = rank_, .occupant = touch.occupant, .turn = 1};
    if (state.occupant != touch.occupant) {
      if (!touch.writes || touch.reads) return {.stale = true, .turn = state.turn};
      state.occupant = touch.occupant;
      ++state.turn;
      state.before = state.now;
      state.now = {};
    }
    return {.turn = state.turn, .before = &state.before};
  }
  // The op at `place` of its lane has touched a slot, which has been entered. The turn of the
  // slot's buffer; 0 where that is not shared.
  std::int32_t Leave(const Touch& touch, int lane, std::int32_t place) {
    if (!Shared(touch)) return 0;
    buffers_[touch.buffer].now[lane] = place;
    return buffers_[touch.buffer].turn;
  }

 private:
  bool Shared(const Touch& touch) const { return touch.buffer >= 0 && touch.keeper != rank_; }

  struct Buffer {
    int rank = -1;
    std::int32_t occupant = 0;
    std::int32_t turn = 0;
    Frontier before = {};
    Frontier now = {};
  };

  std::vector<Buffer> buffers_;
  int rank_ = -1;
};

}  // namespace weft::scheduler
