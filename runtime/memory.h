// The device memory of one rank: the plan's buffers, and optimizer state.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "weft/device.h"
#include "weft/plan.h"
#include "weft/plan_cost.h"
#include "weft/runtime.h"

namespace weft::runtime {

// Rows of `m`, a matrix of `op`, that its rule's state covers on `rank`; 0 for ops that keep none.
std::int64_t StateRows(const Plan& plan, const Op& op, std::int32_t m, int rank);

class Memory {
 public:
  // Allocates what BuffersOfRank() says, and state where a rule runs, cleared. ResourceExhausted
  // names the matrix. `device` must outlive it.
  static absl::StatusOr<std::unique_ptr<Memory>> Create(Device& device, const Plan& plan,
                                                        const std::vector<MatrixSpec>& specs,
                                                        int rank);

  // Null where the rank has no such buffer; where it has no rows of it, it may be another's.
  // kWeight is the trainer's memory; of an owned matrix it is Weft's, on the owner with the spec's
  // weight in it.
  void* slot(std::int32_t matrix, Slot slot) const {
    return slots_[matrix][static_cast<int>(slot)];
  }
  // Where ops of a lane in split form hold their part; null where there are none.
  void* scratch(Lane lane) const { return scratch_[static_cast<int>(lane)]; }
  // fp32, empty where this rank runs no rule for the matrix.
  absl::Span<float> state(std::int32_t matrix) const { return states_[matrix]; }
  // Steps applied so far by an AdamW rule; device memory, one per matrix.
  std::int64_t* applied_steps(std::int32_t matrix = 0) const {
    return applied_steps_->as<std::int64_t>() + matrix;
  }

 private:
  Memory() = default;
  absl::Status KeepWeights(Device& device, const Plan& plan, const std::vector<MatrixSpec>& specs,
                           int rank);

  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::unique_ptr<Buffer> applied_steps_;
  std::array<void*, kLaneCount> scratch_ = {};
  std::vector<std::array<void*, kSlotCount>> slots_;
  std::vector<absl::Span<float>> states_;
};

}  // namespace weft::runtime
