// Layout owned: where the trainer stands in the passes of a step, as its calls of ParameterNeeded()
// and ParameterReleased() tell.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/plan.h"

namespace weft::runtime {

class Passes {
 public:
  // `plan` must outlive it.
  explicit Passes(const Plan& plan) : plan_(plan), states_(plan.uses.size(), State::kAhead) {}

  // Some use is of this layer.
  bool Uses(int layer) const;

  // What a need comes to: uses that the trainer has left out, one that it still held of the same
  // layer, and the one that begins.
  struct Need {
    std::vector<std::int32_t> skipped;
    std::int32_t released = -1;
    std::int32_t use = -1;
  };
  // FailedPrecondition where the step has no further use of the layer, or where releasing the one
  // that is held would come out of order. The use is held from Grant() on; until then the same need
  // comes to it again.
  absl::StatusOr<Need> Begin(int layer);
  void Grant(std::int32_t use) { states_[use] = State::kHeld; }
  // The use that ends. FailedPrecondition where the layer is not held, or one that was needed
  // before it still is.
  absl::StatusOr<std::int32_t> End(int layer);
  // The trainer is through with the uses before `end`: those of them that never came.
  std::vector<std::int32_t> LeaveOut(std::int32_t end);
  // The step is closed: the uses that are still held, and those that never came. The next step
  // begins.
  std::vector<std::int32_t> Close();

 private:
  enum class State : std::uint8_t { kAhead, kAsked, kHeld, kOver };

  std::int32_t Find(int layer, State state) const;
  absl::Status CheckOrder(std::int32_t use) const;

  const Plan& plan_;
  std::vector<State> states_;  // by use
  std::int32_t next_ = 0;      // the first use that may still come
};

}  // namespace weft::runtime
