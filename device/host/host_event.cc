#include "device/host/host_event.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"

namespace weft::device {

void Point::Complete(absl::Status status) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_ = std::move(status);
    done_ = true;
  }
  done_changed_.notify_all();
}

void Point::WakeWaiters() {
  // Taking the mutex orders this after a waiter's check of its stop condition.
  { const std::lock_guard<std::mutex> lock(mutex_); }
  done_changed_.notify_all();
}

bool Point::WaitUntil(Clock& clock, Nanos deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (deadline == base::kNoDeadline) {
    done_changed_.wait(lock, [&] { return done_; });
    return true;
  }
  while (!done_) {
    if (!clock.WaitUntil(done_changed_, lock, deadline)) return done_;
  }
  return true;
}

bool Point::done() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return done_;
}

absl::Status Point::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

std::shared_ptr<Point> HostEvent::Move() {
  auto point = std::make_shared<Point>();
  const std::lock_guard<std::mutex> lock(mutex_);
  point_ = point;
  return point;
}

std::shared_ptr<Point> HostEvent::point() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return point_;
}

absl::StatusOr<bool> HostEvent::Query() const {
  const std::shared_ptr<Point> current = point();
  if (current == nullptr) return true;
  if (!current->done()) return false;
  if (absl::Status status = current->status(); !status.ok()) return status;
  return true;
}

absl::Status HostEvent::Synchronize(absl::Duration timeout) const {
  const std::shared_ptr<Point> current = point();
  if (current == nullptr) return absl::OkStatus();
  if (!current->WaitUntil(clock_, base::DeadlineAfter(clock_, timeout))) {
    return absl::DeadlineExceededError(
        absl::StrCat("an event was not reached within ", absl::FormatDuration(timeout)));
  }
  return current->status();
}

}  // namespace weft::device
