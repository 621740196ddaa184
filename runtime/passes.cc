#include "runtime/passes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::runtime {

bool Passes::Uses(int layer) const {
  return std::any_of(plan_.uses.begin(), plan_.uses.end(),
                     [&](const Use& use) { return use.layer == layer; });
}

std::int32_t Passes::Find(int layer, State state) const {
  for (std::size_t u = 0; u < states_.size(); ++u) {
    if (states_[u] == state && plan_.uses[u].layer == layer) return static_cast<std::int32_t>(u);
  }
  return -1;
}

// The plan takes uses to end in the order in which they begin.
absl::Status Passes::CheckOrder(std::int32_t use) const {
  for (std::int32_t u = 0; u < use; ++u) {
    if (states_[u] != State::kHeld) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("layer ", plan_.uses[use].layer, " cannot be released before layer ",
                     plan_.uses[u].layer, ", which was needed before it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Passes::Need> Passes::Begin(int layer) {
  Need need;
  need.use = Find(layer, State::kAsked);
  if (need.use >= 0) return need;
  for (std::int32_t u = next_; u < static_cast<std::int32_t>(states_.size()); ++u) {
    if (plan_.uses[u].layer != layer) continue;
    need.use = u;
    break;
  }
  if (need.use < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("layer ", layer, " has been needed in every pass of this step (",
                     plan_.limits.passes, " forward and backward); Step() begins the next"));
  }
  need.released = Find(layer, State::kHeld);
  if (need.released >= 0) WEFT_RETURN_IF_ERROR(CheckOrder(need.released));
  need.skipped = LeaveOut(need.use);
  if (need.released >= 0) states_[need.released] = State::kOver;
  states_[need.use] = State::kAsked;
  next_ = need.use + 1;
  return need;
}

absl::StatusOr<std::int32_t> Passes::End(int layer) {
  const std::int32_t use = Find(layer, State::kHeld);
  if (use < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("layer ", layer, " is not held: ParameterNeeded() comes first"));
  }
  WEFT_RETURN_IF_ERROR(CheckOrder(use));
  states_[use] = State::kOver;
  return use;
}

std::vector<std::int32_t> Passes::LeaveOut(std::int32_t end) {
  std::vector<std::int32_t> left_out;
  for (std::int32_t u = 0; u < end; ++u) {
    if (states_[u] != State::kAhead && states_[u] != State::kAsked) continue;
    left_out.push_back(u);
    states_[u] = State::kOver;
  }
  next_ = std::max(next_, end);
  return left_out;
}

std::vector<std::int32_t> Passes::Close() {
  std::vector<std::int32_t> open;
  for (std::size_t u = 0; u < states_.size(); ++u) {
    if (states_[u] != State::kOver) open.push_back(static_cast<std::int32_t>(u));
    states_[u] = State::kAhead;
  }
  next_ = 0;
  return open;
}

}  // namespace weft::runtime
