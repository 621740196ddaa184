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

absl::Status Member::WaitForTurn(const Operation& op, std::int64_t sequence) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Nanos until = clock_.Now() + BoundedNanos(deadline_);
  while (status_.ok() && next_ < sequence) {
    if (!clock_.WaitUntil(changed_, lock, until) && status_.ok() && next_ < sequence) {
      lock.unlock();
      Fail({absl::StatusCode::kDeadlineExceeded, membership_.world_rank(),
            absl::StrCat("waited ", absl::FormatDuration(deadline_),
                         " for its own earlier operation before ", Describe(op))});
      return this->status();
    }
  }
  return status_;
}

}  // namespace weft::collectives
