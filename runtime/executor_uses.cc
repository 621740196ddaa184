// The executor's part in the uses of owned weights: the caller's lane, which belongs to the
// trainer's streams.
#include <algorithm>
#include <array>
#include <iterator>

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
  constexpr auto kNone = std::array<int, kStreamLanes>{-1, -1, -1};
  std::array<int, kStreamLanes> last = kNone, last_previous = kNone;
  const auto advance = [&](std::array<int, kStreamLanes>& known, const std::vector<int>& ops) {
    for (const int op : ops) {
      int& place = known[static_cast<int>(OpOf(ops_[op]).lane)];
      place = std::max(place, op);
    }
  };
  const auto listed = [](const std::array<int, kStreamLanes>& known) {
    std::vector<int> ops;
    std::copy_if(known.begin(), known.end(), std::back_inserter(ops),
                 [](int op) { return op >= 0; });
    return ops;
  };
  for (LocalUse& use : uses_) {
    for (const int index : use.ops) {
      advance(last, ops_[index].after);
      advance(last_previous, ops_[index].after_previous);
    }
    use.after = listed(last);
    use.after_previous = listed(last_previous);
  }
}

absl::Status Executor::Need(std::int32_t use, Stream* stream) {
  needed_ = use;
  IssueReady();
  for (const int before : uses_[use].after) {
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
  // The plan takes the caller's lane for a queue, whatever streams the trainer uses.
  if (last_use_op_ >= 0) stream.Wait(*ops_[last_use_op_].event[parity]);
  for (const int index : uses_[use].ops) {
    stream.Record(*ops_[index].event[parity]);
    ops_[index].issued_step = step_;
    last_use_op_ = index;
  }
}

void Executor::Release(std::int32_t use, Stream* stream) {
  EndUse(use, stream != nullptr ? *stream : *ends_);
  IssueReady();
}

void Executor::Skip(std::int32_t use) { uses_[use].skipped = true; }

bool Executor::EndSkippedUses() {
  bool progress = false;
  for (std::size_t u = 0; u < uses_.size(); ++u) {
    const LocalUse& use = uses_[u];
    if (use.ops.empty() || ops_[use.ops[0]].issued_step == step_) continue;
    const bool ready = use.skipped && std::all_of(use.after.begin(), use.after.end(), [&](int op) {
                         return ops_[op].issued_step == step_;
                       });
    if (!ready) break;
    for (const int before : use.after) ends_->Wait(*ops_[before].event[Parity(step_)]);
    for (const int before : use.after_previous) {
      ends_->Wait(*ops_[before].event[1 - Parity(step_)]);
    }
    EndUse(static_cast<std::int32_t>(u), *ends_);
    progress = true;
  }
  return progress;
}

}  // namespace weft::runtime
