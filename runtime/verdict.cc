#include "runtime/verdict.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/verdict_rules.h"

namespace weft::runtime {
namespace {

using device::Refusal;

static_assert(kVerdictValueCount == kVerdictValues && kVerdictNorms == kVerdictTail);

absl::StatusOr<std::unique_ptr<Buffer>> OnDevice(Device& device, const void* data,
                                                 std::size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device.Allocate(bytes));
  WEFT_RETURN_IF_ERROR(device.CopyNow(buffer->data(), data, bytes));
  return buffer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Verdict>> Verdict::Create(Device& device, const Plan& plan, int rank,
                                                         const VerdictOptions& options) {
  std::unique_ptr<Verdict> verdict(new Verdict(device, plan, rank, options));
  verdict->rules_ = {
      .missing_skips = options.missing_gradient == MissingGradient::kSkip,
      .non_finite_is_error = options.non_finite == NonFinite::kError,
      .non_finite_skips_step = options.non_finite == NonFinite::kSkipStep,
      .max_gradient_norm = options.max_gradient_norm,
  };
  const std::size_t count = plan.matrices.size();
  const std::size_t bytes = verdict->value_count() * sizeof(float);
  WEFT_ASSIGN_OR_RETURN(verdict->norms_, device.Allocate(count * sizeof(float)));
  WEFT_ASSIGN_OR_RETURN(verdict->values_, device.Allocate(bytes));
  WEFT_ASSIGN_OR_RETURN(verdict->controls_, device.Allocate(count * sizeof(StepControl)));
  for (int parity = 0; parity < 2; ++parity) {
    WEFT_ASSIGN_OR_RETURN(verdict->set_[parity], device.AllocateHost(bytes));
    WEFT_ASSIGN_OR_RETURN(verdict->decided_[parity], device.AllocateHost(bytes));
  }
  std::vector<std::int32_t> checked;
  for (const std::int32_t id : plan.lanes[rank][static_cast<int>(Lane::kCompute)]) {
    if (plan.ops[id].kind != OpKind::kCheckGradient) continue;
    for (const std::int32_t m : MatricesOf(plan, plan.ops[id])) checked.push_back(m);
  }
  verdict->checked_count_ = static_cast<std::int32_t>(checked.size());
  WEFT_ASSIGN_OR_RETURN(verdict->checked_,
                        OnDevice(device, checked.data(), checked.size() * sizeof(checked[0])));
  std::vector<std::uint8_t> reduced;
  for (const PlanMatrix& matrix : plan.matrices) {
    reduced.push_back(matrix.gradient == GradientKind::kReduced ? 1 : 0);
  }
  WEFT_ASSIGN_OR_RETURN(verdict->reduced_, OnDevice(device, reduced.data(), reduced.size()));
  return verdict;
}

std::int64_t Verdict::value_count() const {
  return VerdictFloats(plan_.matrices.size(), plan_.topology.grid.size());
}

void Verdict::Set(std::int64_t step, const std::vector<Ballot>& ballots, double loss_scale) {
  auto* next = set_[step & 1]->as<float>();
  std::fill_n(next, value_count(), 0.0f);
  for (const Ballot& ballot : ballots) {
    const bool present = ballot.gradient == Ballot::Gradient::kPresent;
    const bool error = ballot.gradient == Ballot::Gradient::kNone &&
                       options_.missing_gradient == MissingGradient::kError;
    next[kVerdictGradient] = present ? kGradientPresent : kGradientNothing;
    if (error) next[kVerdictGradient] = kGradientMissing + static_cast<float>(rank_);
    next[kVerdictLr] = static_cast<float>(ballot.lr);
    next[kVerdictMinusLr] = -next[kVerdictLr];
    next[kVerdictDecay] = static_cast<float>(ballot.weight_decay);
    next[kVerdictMinusDecay] = -next[kVerdictDecay];
    next[kVerdictLacks] = present || ballot.empty ? -1.0f : 0.0f;
    next += kVerdictValueCount;
  }
  next[kVerdictScale] = static_cast<float>(loss_scale);
  next[kVerdictMinusScale] = -next[kVerdictScale];
  const std::lock_guard<std::mutex> lock(mutex_);
  outcome_[step & 1].reset();
}

VerdictArguments Verdict::Arguments() const {
  return {.matrices = static_cast<std::int32_t>(plan_.matrices.size()),
          .ranks = plan_.topology.grid.size(),
          .rank = rank_,
          .rules = rules_,
          .checked = checked_->as<std::int32_t>(),
          .checked_count = checked_count_,
          .norms = norms_->as<float>(),
          .reduced = reduced_->as<std::uint8_t>(),
          .values = values(),
          .controls = controls_->as<StepControl>()};
}

absl::Status Verdict::EnqueueTally(Stream& stream, std::int64_t step) {
  device_.Copy(stream, values(), set_[step & 1]->data(), value_count() * sizeof(float));
  return device_.math().Tally(stream, Arguments());
}

absl::Status Verdict::EnqueueDecision(Stream& stream, std::int64_t step) {
  WEFT_RETURN_IF_ERROR(device_.math().Decide(stream, Arguments()));
  device_.Copy(stream, decided_[step & 1]->data(), values(), value_count() * sizeof(float));
  return absl::OkStatus();
}

absl::Status Verdict::Judge(std::int64_t step, std::int32_t matrix, const float* own) const {
  const auto refuse = [&](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat("step ", step, ": matrix '",
                                                      plan_.matrices[matrix].name, "' ", what,
                                                      "; the step changed nothing"));
  };
  const auto rate = [&](const char* name, VerdictValue at) {
    return refuse(absl::StrCat("has the ", name, " ", -own[at + 1], " on one rank and ", own[at],
                               " on another"));
  };
  const bool reduced = plan_.matrices[matrix].gradient == GradientKind::kReduced;
  switch (device::RefusalOf(own, reduced, rules_)) {
    case Refusal::kNone:
      return absl::OkStatus();
    case Refusal::kMissing:
      return refuse(absl::StrCat("has no gradient on rank ",
                                 static_cast<int>(own[kVerdictGradient] - kGradientMissing)));
    case Refusal::kPartlyReduced:
      return refuse("comes reduced from one rank and not at all from another");
    case Refusal::kLr:
      return rate("learning rate", kVerdictLr);
    case Refusal::kDecay:
      return rate("weight decay", kVerdictDecay);
    case Refusal::kNonFinite:
      return refuse(absl::StrCat("has a gradient that is not finite, seen on rank ",
                                 static_cast<int>(own[kVerdictNonFinite] - 1)));
  }
  return absl::InternalError("a verdict for an unknown reason");
}

absl::Status Verdict::JudgeAll(std::int64_t step, const float* values) const {
  const auto count = static_cast<std::int32_t>(plan_.matrices.size());
  for (std::int32_t m = 0; m < count; ++m) {
    WEFT_RETURN_IF_ERROR(Judge(step, m, device::ValuesOf(values, m)));
  }
  const float* tail = device::TailOf(values, count);
  if (device::ScalesAgree(tail)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "step ", step, ": the loss scale is ", -tail[kVerdictMinusScale], " on one rank and ",
      tail[kVerdictScale], " on another; the step changed nothing"));
}

const Outcome& Verdict::Known(std::int64_t step) const {
  std::optional<Outcome>& known = outcome_[step & 1];
  if (known) return *known;
  const float* values = decided_[step & 1]->as<float>();
  const std::size_t count = plan_.matrices.size();
  const float* tail = device::TailOf(values, static_cast<std::int64_t>(count));
  Outcome& outcome = known.emplace();
  outcome.status = JudgeAll(step, values);
  bool skip_step = !outcome.status.ok();
  for (std::size_t m = 0; m < count; ++m) {
    const float* own = device::ValuesOf(values, static_cast<std::int64_t>(m));
    outcome.had_gradient.push_back(own[kVerdictGradient] == kGradientPresent);
    outcome.skipped.push_back(device::LeavesAlone(own, rules_));
    skip_step |=
        device::StopsStep(own, plan_.matrices[m].gradient == GradientKind::kReduced, rules_);
  }
  if (skip_step) outcome.skipped.assign(count, true);
  if (outcome.status.ok()) {
    outcome.gradient_norm = device::GradientNorm(tail, plan_.topology.grid.size());
    outcome.clip_factor = device::ClipFactor(outcome.gradient_norm, rules_.max_gradient_norm);
  }
  return outcome;
}

Outcome Verdict::outcome(std::int64_t step) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Known(step);
}

bool Verdict::had_gradient(std::int64_t step, std::int32_t matrix) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Known(step).had_gradient[matrix];
}

bool Verdict::skipped(std::int64_t step, std::int32_t matrix) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Known(step).skipped[matrix];
}

absl::Status Verdict::status(std::int64_t step) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Known(step).status;
}

}  // namespace weft::runtime
