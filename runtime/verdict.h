// Whether a step may change anything, decided by all ranks together inside the streams: before any
// state is touched, the ranks reduce (max) a few numbers per matrix that tell what is wrong with
// it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/device.h"
#include "weft/plan.h"
#include "weft/runtime.h"

namespace weft::runtime {

// What one rank knows of a matrix at Step().
struct Ballot {
  enum class Gradient { kNone, kZeros, kPresent };  // kZeros: the caller says it has none
  Gradient gradient = Gradient::kNone;
  bool empty = false;  // no rows of the gradient belong to this rank
  double lr = 0;       // what this rank's update would use
  double weight_decay = 0;
};

// Buffers are kept for two steps in flight, by parity.
class Verdict {
 public:
  // `device` and `plan` must outlive it.
  static absl::StatusOr<std::unique_ptr<Verdict>> Create(Device& device, const Plan& plan,
                                                         MissingGradient policy);

  // This rank's view of `step`, by matrix.
  absl::Status Set(std::int64_t step, const std::vector<Ballot>& ballots, int rank);

  // What kVerdict reduces in place, and what the update kernels read; device memory.
  float* values(std::int64_t step) const { return values_[step & 1]->as<float>(); }
  std::int64_t value_count() const;
  const float* skip(std::int64_t step) const { return skip_[step & 1]->as<float>(); }

  // Runs in the stream behind the reduction: sets skip() and the outcome.
  void Evaluate(std::int64_t step);

  // After Evaluate(). OK, or why the step changed nothing. Thread-safe.
  absl::Status outcome(std::int64_t step) const;
  // After Evaluate(): some rank had a gradient for the matrix. Thread-safe.
  bool had_gradient(std::int64_t step, std::int32_t matrix) const;

 private:
  absl::Status Judge(std::int64_t step, std::int32_t matrix, const float* values) const;
  Verdict(const Plan& plan, MissingGradient policy) : plan_(plan), policy_(policy) {}

  const Plan& plan_;
  const MissingGradient policy_;
  Device* device_ = nullptr;
  std::array<std::unique_ptr<Buffer>, 2> values_;
  std::array<std::unique_ptr<Buffer>, 2> skip_;
  mutable std::mutex mutex_;
  std::array<absl::Status, 2> outcome_;
  std::array<std::vector<bool>, 2> had_gradient_;
};

}  // namespace weft::runtime
