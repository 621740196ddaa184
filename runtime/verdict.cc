#include "runtime/verdict.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::runtime {
namespace {

// Exact in fp32 for worlds up to 2^24 ranks.
constexpr float kNothing = 0;  // no gradient, and that is allowed
constexpr float kPresent = 1;
constexpr float kMissing = 2;  // plus the rank

}  // namespace

absl::StatusOr<std::unique_ptr<Verdict>> Verdict::Create(Device& device, const Plan& plan,
                                                         MissingGradient policy) {
  std::unique_ptr<Verdict> verdict(new Verdict(plan, policy));
  verdict->device_ = &device;
  for (int parity = 0; parity < 2; ++parity) {
    WEFT_ASSIGN_OR_RETURN(verdict->values_[parity],
                          device.Allocate(plan.matrices.size() * sizeof(float)));
    WEFT_ASSIGN_OR_RETURN(verdict->skip_[parity], device.Allocate(sizeof(float)));
  }
  return verdict;
}

absl::Status Verdict::Set(std::int64_t step, const std::vector<bool>& has_gradient, int rank) {
  std::vector<float> values(has_gradient.size(), kPresent);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (has_gradient[i]) continue;
    values[i] = policy_ == MissingGradient::kError ? kMissing + static_cast<float>(rank) : kNothing;
  }
  return device_->CopyNow(this->values(step), values.data(), values.size() * sizeof(float));
}

void Verdict::Evaluate(std::int64_t step) {
  const float* values = this->values(step);
  absl::Status outcome;
  std::vector<bool> had_gradient(plan_.matrices.size());
  for (std::size_t i = 0; i < had_gradient.size(); ++i) {
    had_gradient[i] = values[i] == kPresent;
    if (outcome.ok() && values[i] >= kMissing) {
      outcome = absl::FailedPreconditionError(absl::StrCat(
          "step ", step, ": matrix '", plan_.matrices[i].name, "' has no gradient on rank ",
          static_cast<int>(values[i] - kMissing), "; the step changed nothing"));
    }
  }
  *skip_[step & 1]->as<float>() = outcome.ok() ? 0.0f : 1.0f;
  const std::lock_guard<std::mutex> lock(mutex_);
  outcome_[step & 1] = outcome;
  had_gradient_[step & 1] = std::move(had_gradient);
}

absl::Status Verdict::outcome(std::int64_t step) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return outcome_[step & 1];
}

bool Verdict::had_gradient(std::int64_t step, std::int32_t matrix) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return had_gradient_[step & 1][matrix];
}

}  // namespace weft::runtime
