// The executor's part in the uses of owned weights: the caller's lane, which belongs to the
// trainer's streams.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "runtime/executor.h"
#include "runtime/op_text.h"

namespace weft::runtime {

using base::View;

void Executor::BuildUses() {
  uses_.resize(context_.plan.uses.size());
  for (const int index : lanes_[static_cast<int>(Lane::kCaller)]) {
    uses_[OpOf(ops_[index]).use].ops.push_back(index);
  }
  const auto extend = [](std::vector<int>& ops, const std::vector<int>& more) {
    ops.insert(ops.end(), more.begin(), more.end());
  };
  // To the plan a use comes after what the uses before it come after.
  std::vector<int> listed;
  for (LocalUse& use : uses_) {
    std::vector<int> after, after_previous;
    for (const int index : use.ops) {
      extend(listed, ops_[index].listed);
      extend(after, ops_[index].after);
      extend(after_previous, ops_[index].after_previous);
    }
    Frontier known_listed = {}, known = {}, known_previous = {};
    use.listed = listed = NotIn(known_listed, std::move(listed));
    use.after = NotIn(known, std::move(after));
    for (const int op : use.after) scheduler::Merge(known_previous, ops_[op].known_previous);
    use.after_previous = NotIn(known_previous, std::move(after_previous));
  }
  for (const LocalOp& local : ops_) {
    for (const std::vector<int>* list : {&local.after, &local.after_previous}) {
      for (const int before : *list) {
        if (OpOf(ops_[before]).lane != Lane::kCaller) continue;
        awaited_uses_ = std::max(awaited_uses_, OpOf(ops_[before]).use + 1);
      }
    }
  }
}

bool Executor::unused() const {
  return step_ == first_step_ && needed_ < 0 &&
         std::all_of(cursor_.begin(), cursor_.end(), [](std::size_t next) { return next == 0; });
}

void Executor::StartAt(std::int64_t steps, absl::Span<const std::int64_t> last_gradient_steps) {
  step_ = first_step_ = steps;
  const std::lock_guard<std::mutex> lock(mutex_);
  completed_steps_ = steps;
  for (std::size_t m = 0; m < counters_.size(); ++m) {
    counters_[m].last_gradient_step = last_gradient_steps[m];
  }
}

absl::Status Executor::Need(std::int32_t use, Stream* stream) {
  needed_ = use;
  IssueReady();
  for (const int before : uses_[use].listed) {
    if (ops_[before].issued_step == step_) continue;
    const Op& op = OpOf(ops_[before]);
    return absl::FailedPreconditionError(absl::StrCat(
        "layer ", context_.plan.uses[use].layer, ": the ", View(Name(op.kind)), " of ",
        SubjectOf(context_.plan, op), " is not issued yet; gradients of later layers, or the ",
        "release of one that was needed before, come first in plan order"));
  }
  const int parity = Parity(step_);
  const auto wait = [&](int before, int its_parity) -> absl::Status {
    const Event& event = *ops_[before].event[its_parity];
    if (stream == nullptr) {
      return AwaitEvent(event, "weight", OpOf(ops_[before]).matrix);
    }
    stream->Wait(event);
    return absl::OkStatus();
  };
  for (const int before : uses_[use].after) WEFT_RETURN_IF_ERROR(wait(before, parity));
  for (const int before : uses_[use].after_previous) {
    WEFT_RETURN_IF_ERROR(wait(before, 1 - parity));
  }
  return absl::OkStatus();
}

void Executor::EndUse(std::int32_t use, Stream& stream) {
  const int parity = Parity(step_);
  const bool awaited = use < awaited_uses_;
  // Ends are in the plan's order, whatever streams the trainer uses, and through all steps.
  if (awaited && last_use_end_ != nullptr) stream.Wait(*last_use_end_);
  for (const int index : uses_[use].ops) {
    stream.Record(*ops_[index].event[parity]);
    ops_[index].issued_step = step_;
    if (awaited) last_use_end_ = ops_[index].event[parity].get();
  }
}

void Executor::Release(std::int32_t use, Stream* stream) {
  EndUse(use, stream != nullptr ? *stream : *ends_);
  IssueReady();
}

void Executor::Skip(std::int32_t use) { uses_[use].skipped = true; }

bool Executor::Ended(const LocalUse& use) const {
  return use.ops.empty() || ops_[use.ops[0]].issued_step == step_;
}

bool Executor::EndSkippedUses() {
  bool progress = false;
  for (std::size_t u = 0; u < uses_.size(); ++u) {
    const LocalUse& use = uses_[u];
    if (Ended(use)) continue;
    const bool ready =
        use.skipped && std::all_of(use.listed.begin(), use.listed.end(),
                                   [&](int op) { return ops_[op].issued_step == step_; });
    if (!ready) break;
    EndUse(static_cast<std::int32_t>(u), *ends_);
    progress = true;
  }
  return progress;
}

}  // namespace weft::runtime
