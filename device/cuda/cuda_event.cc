#include "device/cuda/cuda_event.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "device/cuda/poll.h"

namespace weft::device {
namespace {

absl::Status StatusOfWait(const absl::StatusOr<bool>& reached, absl::Duration timeout) {
  if (!reached.ok()) return reached.status();
  if (*reached) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("an event was not reached within ", absl::FormatDuration(timeout)));
}

}  // namespace

absl::StatusOr<bool> EventPoint::Reached() const {
  if (stream == nullptr) return true;
  if (mark != nullptr) {
    absl::StatusOr<bool> reached = mark->Reached();
    if (!reached.ok()) return reached;
    if (!*reached) {
      if (stream->aborted()) return stream->status();
      return false;
    }
  }
  if (absl::Status status = stream->StatusAt(position); !status.ok()) return status;
  return true;
}

absl::StatusOr<bool> CudaEvent::Query() const { return point().Reached(); }

absl::Status CudaEvent::Synchronize(absl::Duration timeout) const {
  const EventPoint current = point();
  const absl::StatusOr<bool> reached =
      Poll(clock_, base::DeadlineAfter(clock_, timeout), [&] { return current.Reached(); });
  return StatusOfWait(reached, timeout);
}

void CudaEvent::Move(EventPoint point) {
  // What was held is let go outside of the lock.
  const std::lock_guard<std::mutex> lock(mutex_);
  std::swap(point_, point);
}

EventPoint CudaEvent::point() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return point_;
}

absl::StatusOr<bool> AdoptedEvent::Query() const { return pool_->Passed(event_); }

absl::Status AdoptedEvent::Synchronize(absl::Duration timeout) const {
  const absl::StatusOr<bool> reached =
      Poll(clock_, base::DeadlineAfter(clock_, timeout), [&] { return Query(); });
  return StatusOfWait(reached, timeout);
}

}  // namespace weft::device
