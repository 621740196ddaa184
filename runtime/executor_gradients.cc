// How submitted gradients come into their slots.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "runtime/executor.h"
#include "runtime/op_text.h"

namespace weft::runtime {

void* Executor::GradientSlot(std::int32_t matrix) const {
  if (matrices_[matrix].gradient_bytes == 0) return nullptr;
  return context_.memory.slot(matrix, Slot::kGradient);
}

absl::Status Executor::AddGradient(std::int32_t matrix, const void* gradient, const Event* ready) {
  MatrixState& state = matrices_[matrix];
  void* slot = GradientSlot(matrix);
  if (slot == nullptr) return absl::OkStatus();
  const DType dtype = context_.plan.matrices[matrix].dtype;
  const auto count = static_cast<std::int64_t>(state.gradient_bytes / SizeOf(dtype));
  if (ready != nullptr) staging_->Wait(*ready);
  WEFT_RETURN_IF_ERROR(context_.device.math().Add(*staging_, count, gradient, slot, dtype));
  staging_->Record(*state.staged);
  state.staged_at = ++staged_;
  if (ready != nullptr) return absl::OkStatus();
  return AwaitEvent(*state.staged, "gradient", matrix);
}

Executor::Readers Executor::LastReaders(const MatrixState& state) const {
  if (state.submitted == 0) return {state.gradient_readers.back(), step_ - 1};
  return {state.gradient_readers[state.submitted - 1], step_};
}

absl::Status Executor::TakeGradient(std::int32_t matrix, const void* gradient, const Event* ready) {
  MatrixState& state = matrices_[matrix];
  void* slot = GradientSlot(matrix);
  state.staged_at = 0;
  if (slot == nullptr) return absl::OkStatus();
  if (gradient == nullptr || ready != nullptr) {
    StageGradient(matrix, gradient, ready);
    return absl::OkStatus();
  }
  const Readers readers = LastReaders(state);
  for (const int reader : readers.ops) {
    WEFT_RETURN_IF_ERROR(
        AwaitEvent(*ops_[reader].event[Parity(readers.step)], "last reduction", matrix));
  }
  return context_.device.CopyNow(slot, gradient, state.gradient_bytes);
}

void Executor::StageGradient(std::int32_t matrix, const void* gradient, const Event* ready) {
  MatrixState& state = matrices_[matrix];
  void* slot = GradientSlot(matrix);
  if (slot == nullptr) return;
  const Readers readers = LastReaders(state);
  for (const int reader : readers.ops) StagingWaitsFor(reader, readers.step);
  if (ready != nullptr) staging_->Wait(*ready);
  if (gradient != nullptr) {
    context_.device.Copy(*staging_, slot, gradient, state.gradient_bytes);
  } else {
    context_.device.Clear(*staging_, slot, state.gradient_bytes);
  }
  staging_->Record(*state.staged);
  state.staged_at = ++staged_;
}

absl::Status Executor::CheckGradientsOf(int pass) const {
  for (std::size_t m = 0; m < matrices_.size(); ++m) {
    if (!ReducesEachPass(static_cast<std::int32_t>(m)) || matrices_[m].submitted > pass) continue;
    return absl::FailedPreconditionError(absl::StrCat("micro-step ", pass + 2, " of step ", step_,
                                                      " cannot begin: matrix '", counters_[m].name,
                                                      "' has no gradient of the one before yet"));
  }
  return absl::OkStatus();
}

absl::Status Executor::BeginPass(int pass, std::int32_t end) {
  needed_ = std::max(needed_, end - 1);
  IssueReady();
  for (std::size_t m = 0; m < matrices_.size(); ++m) {
    if (!ReducesEachPass(static_cast<std::int32_t>(m))) continue;
    for (const int reader : matrices_[m].gradient_readers[pass - 1]) {
      if (ops_[reader].issued_step == step_) continue;
      const Op& op = OpOf(ops_[reader]);
      return absl::FailedPreconditionError(absl::StrCat(
          "micro-step ", pass + 1, " of step ", step_, " cannot begin: the ",
          base::View(Name(op.kind)), " of ", SubjectOf(context_.plan, op), " of the one before is ",
          "not issued yet; the release of layers that were needed comes first"));
    }
  }
  return absl::OkStatus();
}

// Pass by pass: a copy waits for the reads of the pass before, which have to be issued by then.
void Executor::ClearMissing() {
  const auto count = static_cast<std::int32_t>(matrices_.size());
  for (int pass = 0; pass < context_.plan.limits.passes; ++pass) {
    bool missing = false;
    for (std::int32_t m = 0; m < count; ++m) {
      missing |= ReducesEachPass(m) && matrices_[m].submitted <= pass;
    }
    if (!missing) continue;
    IssueReady();
    for (std::int32_t m = 0; m < count; ++m) {
      if (!ReducesEachPass(m) || matrices_[m].submitted > pass) continue;
      StageGradient(m, nullptr, nullptr);
      GradientTaken(m);
    }
  }
}

}  // namespace weft::runtime
