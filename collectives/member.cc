#include "collectives/member.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::collectives {

Nanos BoundedNanos(absl::Duration duration) {
  return std::clamp<Nanos>(absl::ToInt64Nanoseconds(duration), 0,
                           std::numeric_limits<Nanos>::max() / 4);
}

Member::Member(Membership membership, Clock& clock, absl::Duration deadline)
    : membership_(std::move(membership)), clock_(clock), deadline_(deadline) {}

absl::Status Member::Execute(const Operation& op, std::int64_t sequence) {
  absl::Status status = WaitForTurn(op, sequence);
  if (status.ok()) {
    status = Run(op);
    if (!status.ok()) Kill(status);
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    next_ = std::max(next_, sequence + 1);
    running_ = false;
    last_change_ = clock_.Now();
  }
  changed_.notify_all();
  return status;
}

void Member::Skip(const Operation& op, const absl::Status& cause) {
  if (!status().ok()) return;
  Fail({cause.code(), membership_.world_rank(),
        absl::StrCat("did not come to ", Describe(op),
                     " because its stream had failed: ", cause.message())});
}

void Member::Kill(const absl::Status& status) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  changed_.notify_all();
}

absl::Status Member::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

Nanos Member::WaitLimit(Nanos begin) const { return begin + BoundedNanos(deadline_); }

// An earlier operation that runs has limits of its own; one that never starts, because its stream
// is stuck, has not.
absl::Status Member::WaitForTurn(const Operation& op, std::int64_t sequence) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Nanos begin = clock_.Now();
  while (status_.ok() && next_ < sequence) {
    const Nanos since = running_ ? clock_.Now() : std::max(begin, last_change_);
    clock_.WaitUntil(changed_, lock, WaitLimit(since));
    const bool late = !running_ && clock_.Now() >= WaitLimit(std::max(begin, last_change_));
    if (!late || !status_.ok() || next_ >= sequence) continue;
    lock.unlock();
    Fail({absl::StatusCode::kDeadlineExceeded, membership_.world_rank(),
          absl::StrCat("waited ", absl::FormatDuration(deadline_),
                       " for its own earlier operation before ", Describe(op))});
    return status();
  }
  if (status_.ok()) {
    running_ = true;
    last_change_ = clock_.Now();
  }
  return status_;
}

}  // namespace weft::collectives
