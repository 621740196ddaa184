#include "runtime/verdict.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::runtime {
namespace {

// Ranks are exact in fp32 for worlds up to 2^24.
constexpr float kNothing = 0;  // no gradient, and that is allowed
constexpr float kPresent = 1;
constexpr float kMissing = 2;  // plus the rank

// The values of a matrix. Of a rate both signs are reduced: their largest show whether all ranks
// mean the same.
enum Value : int {
  kGradient,  // one of the above
  kLr,
  kMinusLr,
  kDecay,
  kMinusDecay,
  kLacks,      // -1 from ranks that do not lack a gradient, else 0
  kNonFinite,  // 0, or 1 plus the rank that saw it
  kMatrixValues
};
static_assert(kMatrixValues == kVerdictValues);

// Behind those of all matrices: the loss scale with both signs, and a norm per rank.
constexpr int kScale = 0;
constexpr int kMinusScale = 1;
constexpr int kNorms = 2;
static_assert(kNorms == kVerdictTail);

// torch.nn.utils.clip_grad_norm_'s.
constexpr double kClipEps = 1e-6;

}  // namespace

absl::StatusOr<std::unique_ptr<Verdict>> Verdict::Create(Device& device, const Plan& plan, int rank,
                                                         const VerdictOptions& options) {
  std::unique_ptr<Verdict> verdict(new Verdict(plan, rank, options));
  verdict->device_ = &device;
  const std::size_t count = plan.matrices.size();
  WEFT_ASSIGN_OR_RETURN(verdict->norms_, device.Allocate(count * sizeof(float)));
  for (int parity = 0; parity < 2; ++parity) {
    WEFT_ASSIGN_OR_RETURN(verdict->values_[parity],
                          device.Allocate(verdict->value_count() * sizeof(float)));
    WEFT_ASSIGN_OR_RETURN(verdict->controls_[parity], device.Allocate(count * sizeof(StepControl)));
  }
  for (const std::int32_t id : plan.lanes[rank][static_cast<int>(Lane::kCompute)]) {
    if (plan.ops[id].kind != OpKind::kCheckGradient) continue;
    for (const std::int32_t m : MatricesOf(plan, plan.ops[id])) verdict->checked_.push_back(m);
  }
  return verdict;
}

std::int64_t Verdict::value_count() const {
  return VerdictFloats(plan_.matrices.size(), plan_.topology.grid.size());
}

absl::Status Verdict::Set(std::int64_t step, const std::vector<Ballot>& ballots,
                          double loss_scale) {
  std::vector<float> values(value_count(), 0.0f);
  float* next = values.data();
  for (const Ballot& ballot : ballots) {
    const bool present = ballot.gradient == Ballot::Gradient::kPresent;
    const bool error = ballot.gradient == Ballot::Gradient::kNone &&
                       options_.missing_gradient == MissingGradient::kError;
    next[kGradient] = present ? kPresent : kNothing;
    if (error) next[kGradient] = kMissing + static_cast<float>(rank_);
    next[kLr] = static_cast<float>(ballot.lr);
    next[kMinusLr] = -next[kLr];
    next[kDecay] = static_cast<float>(ballot.weight_decay);
    next[kMinusDecay] = -next[kDecay];
    next[kLacks] = present || ballot.empty ? -1.0f : 0.0f;
    next += kVerdictValues;
  }
  next[kScale] = static_cast<float>(loss_scale);
  next[kMinusScale] = -next[kScale];
  return device_->CopyNow(this->values(step), values.data(), values.size() * sizeof(float));
}

void Verdict::Tally(std::int64_t step) {
  float* values = this->values(step);
  double square = 0;
  for (const std::int32_t matrix : checked_) {
    const double norm = *this->norm(matrix);
    if (std::isfinite(norm)) {
      square += norm * norm;
    } else {
      values[matrix * kVerdictValues + kNonFinite] = 1 + static_cast<float>(rank_);
    }
  }
  float* tail = values + plan_.matrices.size() * kVerdictValues;
  tail[kNorms + rank_] = static_cast<float>(std::sqrt(square));
}

absl::Status Verdict::Judge(std::int64_t step, std::int32_t matrix, const float* values) const {
  const auto refuse = [&](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat("step ", step, ": matrix '",
                                                      plan_.matrices[matrix].name, "' ", what,
                                                      "; the step changed nothing"));
  };
  if (values[kGradient] >= kMissing) {
    return refuse(
        absl::StrCat("has no gradient on rank ", static_cast<int>(values[kGradient] - kMissing)));
  }
  // Zeros are a rank's share of a sum; of a gradient that is already summed they are another value.
  if (plan_.matrices[matrix].gradient == GradientKind::kReduced && values[kGradient] == kPresent &&
      values[kLacks] == 0) {
    return refuse("comes reduced from one rank and not at all from another");
  }
  for (const auto& [name, at] :
       {std::pair("learning rate", kLr), std::pair("weight decay", kDecay)}) {
    if (values[at] == -values[at + 1]) continue;
    return refuse(absl::StrCat("has the ", name, " ", -values[at + 1], " on one rank and ",
                               values[at], " on another"));
  }
  if (options_.non_finite == NonFinite::kError && values[kNonFinite] > 0) {
    return refuse(absl::StrCat("has a gradient that is not finite, seen on rank ",
                               static_cast<int>(values[kNonFinite] - 1)));
  }
  return absl::OkStatus();
}

absl::Status Verdict::JudgeAll(std::int64_t step, const float* values) const {
  const auto count = static_cast<std::int32_t>(plan_.matrices.size());
  for (std::int32_t m = 0; m < count; ++m) {
    WEFT_RETURN_IF_ERROR(Judge(step, m, values + std::int64_t{m} * kVerdictValues));
  }
  const float* tail = values + std::int64_t{count} * kVerdictValues;
  if (tail[kScale] == -tail[kMinusScale]) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("step ", step, ": the loss scale is ", -tail[kMinusScale], " on one rank and ",
                   tail[kScale], " on another; the step changed nothing"));
}

Outcome Verdict::Evaluate(std::int64_t step) {
  const float* values = this->values(step);
  const std::size_t count = plan_.matrices.size();
  const float* tail = values + count * kVerdictValues;
  Outcome outcome;
  outcome.status = JudgeAll(step, values);
  bool skip_step = !outcome.status.ok();
  for (std::size_t m = 0; m < count; ++m) {
    const float* own = values + m * kVerdictValues;
    outcome.had_gradient.push_back(own[kGradient] == kPresent);
    const bool absent =
        options_.missing_gradient == MissingGradient::kSkip && !outcome.had_gradient.back();
    outcome.skipped.push_back(absent || own[kNonFinite] > 0);
    skip_step |= own[kNonFinite] > 0 && options_.non_finite == NonFinite::kSkipStep;
  }
  if (skip_step) outcome.skipped.assign(count, true);
  const double scale = tail[kScale];
  if (outcome.status.ok()) {
    double square = 0;
    for (int rank = 0; rank < plan_.topology.grid.size(); ++rank) {
      const double part = tail[kNorms + rank];
      square += part * part;
    }
    outcome.gradient_norm = std::sqrt(square) / scale;
    if (options_.max_gradient_norm > 0) {
      outcome.clip_factor =
          std::min(1.0, options_.max_gradient_norm / (outcome.gradient_norm + kClipEps));
    }
  }
  const auto factor = static_cast<float>(outcome.clip_factor / scale);
  StepControl* controls = controls_[step & 1]->as<StepControl>();
  for (std::size_t m = 0; m < count; ++m) {
    controls[m] = {.skip = outcome.skipped[m] ? 1.0f : 0.0f, .gradient_factor = factor};
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  outcome_[step & 1] = outcome;
  return outcome;
}

bool Verdict::had_gradient(std::int64_t step, std::int32_t matrix) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return outcome_[step & 1].had_gradient[matrix];
}

bool Verdict::skipped(std::int64_t step, std::int32_t matrix) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return outcome_[step & 1].skipped[matrix];
}

absl::Status Verdict::status(std::int64_t step) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return outcome_[step & 1].status;
}

}  // namespace weft::runtime
