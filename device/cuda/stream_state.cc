#include "device/cuda/stream_state.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::device {

absl::Status StreamState::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

absl::Status StreamState::StatusAt(std::int64_t position) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failed_at_ <= position ? status_ : absl::OkStatus();
}

void StreamState::Fail(absl::Status cause, std::int64_t position) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return;
  status_ = std::move(cause);
  failed_at_ = position;
}

void StreamState::Abort(absl::Status cause) {
  Fail(std::move(cause), Next());
  aborted_ = true;
}

absl::Status StreamState::Thrown(const char* what) const {
  return absl::InternalError(what != nullptr
                                 ? absl::StrCat("an item of stream ", name_, " threw: ", what)
                                 : absl::StrCat("an item of stream ", name_,
                                                " threw something that is no std::exception"));
}

void StreamState::PushHostWork(Stream::Work work, std::int64_t position) {
  const std::lock_guard<std::mutex> lock(mutex_);
  host_work_.push_back({std::move(work), position});
}

void StreamState::RunHostWork() {
  HostWork next;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    next = std::move(host_work_.front());
    host_work_.pop_front();
  }
  if (!StatusAt(next.position).ok()) return;
  absl::Status status = Guarded(next.work);
  if (!status.ok()) Fail(std::move(status), next.position);
}

void StreamState::DropHostWork() {
  HostWork dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  dropped = std::move(host_work_.back());
  host_work_.pop_back();
}

}  // namespace weft::device
