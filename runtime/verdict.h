// What a step may change, decided by all ranks together inside the streams: before any state is
// touched, the ranks reduce (max) a few numbers that tell what is wrong with the step, and the
// norms of their parts of the gradients (weft/verdict.h). The host never waits for that: it draws
// the same conclusions from a copy, when somebody asks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/device.h"
#include "weft/math.h"
#include "weft/plan.h"
#include "weft/runtime.h"
#include "weft/verdict.h"

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

// What the host writes or reads is kept for two steps in flight, by parity; the device's own memory
// is one step's, whose ops the plan orders. Thread-safe.
class Verdict {
 public:
  // `device` and `plan` must outlive it.
  static absl::StatusOr<std::unique_ptr<Verdict>> Create(Device& device, const Plan& plan, int rank,
                                                         const VerdictOptions& options);

  // This rank's view of `step`, by matrix. The step before the last is complete.
  void Set(std::int64_t step, const std::vector<Ballot>& ballots, double loss_scale);

  // Where a check leaves the norm of this rank's part of a gradient; device memory.
  float* norm(std::int32_t matrix) const { return norms_->as<float>() + matrix; }
  // Before the reduction: what was set, and what the checks have found.
  absl::Status EnqueueTally(Stream& stream, std::int64_t step);
  // What kVerdict reduces in place; device memory.
  float* values() const { return values_->as<float>(); }
  std::int64_t value_count() const;
  // Behind the reduction: sets the controls.
  absl::Status EnqueueDecision(Stream& stream, std::int64_t step);
  // What the update kernels read; device memory.
  const StepControl* control(std::int32_t matrix) const {
    return controls_->as<StepControl>() + matrix;
  }

  // Once the decision has run, until two steps later.
  Outcome outcome(std::int64_t step) const;
  absl::Status status(std::int64_t step) const;
  bool had_gradient(std::int64_t step, std::int32_t matrix) const;
  bool skipped(std::int64_t step, std::int32_t matrix) const;

 private:
  Verdict(Device& device, const Plan& plan, int rank, const VerdictOptions& options)
      : device_(device), plan_(plan), rank_(rank), options_(options) {}

  VerdictArguments Arguments() const;
  absl::Status Judge(std::int64_t step, std::int32_t matrix, const float* own) const;
  absl::Status JudgeAll(std::int64_t step, const float* values) const;
  // With the lock held.
  const Outcome& Known(std::int64_t step) const;

  Device& device_;
  const Plan& plan_;
  const int rank_;
  const VerdictOptions options_;
  VerdictRules rules_;
  std::int32_t checked_count_ = 0;
  std::unique_ptr<Buffer> checked_;  // matrices that this rank checks
  std::unique_ptr<Buffer> reduced_;  // by matrix: comes reduced
  std::unique_ptr<Buffer> norms_;
  std::unique_ptr<Buffer> values_;
  std::unique_ptr<Buffer> controls_;
  // Page-locked: the values on their way to the device and back.
  std::array<std::unique_ptr<Buffer>, 2> set_;
  std::array<std::unique_ptr<Buffer>, 2> decided_;
  mutable std::mutex mutex_;
  mutable std::array<std::optional<Outcome>, 2> outcome_;
};

}  // namespace weft::runtime
