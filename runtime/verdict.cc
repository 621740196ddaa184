#include "runtime/verdict.h"

#include <string>
#include <utility>

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
                          device.Allocate(verdict->value_count() * sizeof(float)));
    WEFT_ASSIGN_OR_RETURN(verdict->skip_[parity], device.Allocate(sizeof(float)));
  }
  return verdict;
}

std::int64_t Verdict::value_count() const {
  return static_cast<std::int64_t>(plan_.matrices.size()) * kVerdictValues;
}

// Per matrix: what is wrong with it; lr, -lr, weight decay and -weight decay, whose largest show
// whether all ranks mean the same; and -1 from ranks that do not lack a gradient.
absl::Status Verdict::Set(std::int64_t step, const std::vector<Ballot>& ballots, int rank) {
  std::vector<float> values;
  values.reserve(value_count());
  for (const Ballot& ballot : ballots) {
    float wrong = kNothing;
    if (ballot.gradient == Ballot::Gradient::kPresent) wrong = kPresent;
    if (ballot.gradient == Ballot::Gradient::kNone && policy_ == MissingGradient::kError) {
      wrong = kMissing + static_cast<float>(rank);
    }
    const auto lr = static_cast<float>(ballot.lr);
    const auto decay = static_cast<float>(ballot.weight_decay);
    const bool lacks = wrong != kPresent && !ballot.empty;
    values.insert(values.end(), {wrong, lr, -lr, decay, -decay, lacks ? 0.0f : -1.0f});
  }
  return device_->CopyNow(this->values(step), values.data(), values.size() * sizeof(float));
}

absl::Status Verdict::Judge(std::int64_t step, std::int32_t matrix, const float* values) const {
  const auto refuse = [&](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat("step ", step, ": matrix '",
                                                      plan_.matrices[matrix].name, "' ", what,
                                                      "; the step changed nothing"));
  };
  if (values[0] >= kMissing) {
    return refuse(absl::StrCat("has no gradient on rank ", static_cast<int>(values[0] - kMissing)));
  }
  // Zeros are a rank's share of a sum; of a gradient that is already summed they are another value.
  if (plan_.matrices[matrix].gradient == GradientKind::kReduced && values[0] == kPresent &&
      values[5] == 0) {
    return refuse("comes reduced from one rank and not at all from another");
  }
  for (const auto& [name, at] : {std::pair{"learning rate", 1}, std::pair{"weight decay", 3}}) {
    if (values[at] == -values[at + 1]) continue;
    return refuse(absl::StrCat("has the ", name, " ", -values[at + 1], " on one rank and ",
                               values[at], " on another"));
  }
  return absl::OkStatus();
}

void Verdict::Evaluate(std::int64_t step) {
  absl::Status outcome;
  std::vector<bool> had_gradient(plan_.matrices.size());
  for (std::size_t i = 0; i < had_gradient.size(); ++i) {
    const float* values = this->values(step) + i * kVerdictValues;
    had_gradient[i] = values[0] == kPresent;
    if (outcome.ok()) outcome = Judge(step, static_cast<std::int32_t>(i), values);
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
