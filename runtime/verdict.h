// What a step may change, decided by all ranks together inside the streams: before any state is
// touched, the ranks reduce (max) a few numbers that tell what is wrong with the step, and the
// norms of their parts of the gradients.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/device.h"
#include "weft/math.h"
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

struct VerdictOptions {
  MissingGradient missing_gradient = MissingGradient::kError;
  NonFinite non_finite = NonFinite::kError;
  double max_gradient_norm = 0;
};

// What has become of a step.
struct Outcome {
  absl::Status status;  // OK, or why it changed nothing
  double gradient_norm = 0;
  double clip_factor = 1;
  std::vector<bool> had_gradient;  // by matrix: on some rank
  std::vector<bool> skipped;       // by matrix
};

// Buffers are kept for two steps in flight, by parity.
class Verdict {
 public:
  // `device` and `plan` must outlive it.
  static absl::StatusOr<std::unique_ptr<Verdict>> Create(Device& device, const Plan& plan, int rank,
                                                         const VerdictOptions& options);

  // This rank's view of `step`, by matrix.
  absl::Status Set(std::int64_t step, const std::vector<Ballot>& ballots, double loss_scale);

  // Where a check leaves the norm of this rank's part of a gradient; device memory.
  float* norm(std::int32_t matrix) const { return norms_->as<float>() + matrix; }
  // Runs in the stream before the reduction: adds what the checks have found.
  void Tally(std::int64_t step);
  // What kVerdict reduces in place; device memory.
  float* values(std::int64_t step) const { return values_[step & 1]->as<float>(); }
  std::int64_t value_count() const;
  // Runs in the stream behind the reduction: sets the controls, returns the outcome.
  Outcome Evaluate(std::int64_t step);
  // What the update kernels read; device memory.
  const StepControl* control(std::int64_t step, std::int32_t matrix) const {
    return controls_[step & 1]->as<StepControl>() + matrix;
  }

  // After Evaluate(), until two steps later. Thread-safe.
  absl::Status status(std::int64_t step) const;
  bool had_gradient(std::int64_t step, std::int32_t matrix) const;
  bool skipped(std::int64_t step, std::int32_t matrix) const;

 private:
  Verdict(const Plan& plan, int rank, const VerdictOptions& options)
      : plan_(plan), rank_(rank), options_(options) {}

  absl::Status Judge(std::int64_t step, std::int32_t matrix, const float* values) const;
  absl::Status JudgeAll(std::int64_t step, const float* values) const;

  const Plan& plan_;
  const int rank_;
  const VerdictOptions options_;
  Device* device_ = nullptr;
  std::vector<std::int32_t> checked_;  // matrices that this rank checks
  std::unique_ptr<Buffer> norms_;
  std::array<std::unique_ptr<Buffer>, 2> values_;
  std::array<std::unique_ptr<Buffer>, 2> controls_;
  mutable std::mutex mutex_;
  std::array<Outcome, 2> outcome_;
};

}  // namespace weft::runtime
