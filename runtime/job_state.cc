#include "runtime/job_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/string_view.h"
#include "runtime/messages.h"
#include "weft/job.h"

namespace weft::runtime {
using base::View;
namespace {

// A callback runs between the stages of jobs, its own and others': one that throws must not keep
// them, or the callbacks after it, from being told.
void CallGuarded(const std::function<void(const absl::Status&)>& callback,
                 const absl::Status& status) {
  try {
    callback(status);
  } catch (...) {  // the contract of OnStage
  }
}

}  // namespace

absl::Status JobState::NotIssued(Stage stage) const {
  return absl::FailedPreconditionError(absl::StrCat(
      "matrix '", matrix_, "': the work towards stage ", View(Name(stage)), " of step ", step_,
      " is not issued yet; it waits for earlier jobs in plan order or for Step()"));
}

void JobState::MarkIssued(Stage stage, std::shared_ptr<Event> event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  StageState& state = stages_[static_cast<int>(stage)];
  state.issued = true;
  state.event = std::move(event);
}

void JobState::MarkReached(Stage stage, const absl::Status& status) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    StageState& state = stages_[static_cast<int>(stage)];
    if (state.arrived) return;
    state.arrived = true;
    state.status = status;
    // Lanes report on threads of their own, so a later stage may be reported before an earlier one.
    for (StageState& next : stages_) {
      if (!next.arrived) break;
      next.done = true;
    }
    if (stages_.back().done) lifetime_.End();
    changed_.notify_all();
  }
  Tell();
}

void JobState::Tell() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (telling_) return;
  telling_ = true;
  for (int i = 0; i < kStageCount && stages_[i].done; ++i) {
    StageState& state = stages_[i];
    if (state.told) continue;
    state.told = true;
    const auto callbacks = std::exchange(state.callbacks, {});
    const absl::Status status = state.status;
    lock.unlock();
    if (completions_ != nullptr) completions_->Push({id_, step_, static_cast<Stage>(i), status});
    for (const auto& callback : callbacks) CallGuarded(callback, status);
    lock.lock();
  }
  telling_ = false;
}

void JobState::FailOpenStages(const absl::Status& status) {
  for (int stage = 0; stage < kStageCount; ++stage) MarkReached(static_cast<Stage>(stage), status);
}

bool JobState::Done(Stage stage) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stages_[static_cast<int>(stage)].done;
}

absl::StatusOr<bool> JobState::Reached(Stage stage) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const StageState& state = stages_[static_cast<int>(stage)];
  if (state.done && !state.status.ok()) return state.status;
  return state.done;
}

absl::Status JobState::WaitOn(Stream& stream, Stage stage) const {
  std::shared_ptr<Event> event;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const StageState& state = stages_[static_cast<int>(stage)];
    if (state.done) return state.status;
    if (!state.issued) return NotIssued(stage);
    event = state.event;
  }
  if (event != nullptr) stream.Wait(*event);
  return absl::OkStatus();
}

absl::Status JobState::Wait(Stage stage, absl::Duration timeout) const {
  const base::Range range(kWaitForJob, step_);
  const Nanos begin = clock_.Now();
  const Nanos deadline = base::DeadlineAfter(clock_, timeout);
  std::unique_lock<std::mutex> lock(mutex_);
  const StageState& state = stages_[static_cast<int>(stage)];
  if (state.done) return state.status;
  if (!state.issued) return NotIssued(stage);
  while (!state.done) {
    if (!clock_.WaitUntil(changed_, lock, deadline) && !state.done) {
      return absl::DeadlineExceededError(
          absl::StrCat("matrix '", matrix_, "': stage ", View(Name(stage)), " of step ", step_,
                       " not reached within ", absl::FormatDuration(timeout)));
    }
  }
  absl::Status status = state.status;
  const WaitListener listener = wait_listener_;
  lock.unlock();
  if (listener) listener(step_, begin, clock_.Now());
  return status;
}

void JobState::OnStage(Stage stage, std::function<void(const absl::Status&)> callback) {
  absl::Status status;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    StageState& state = stages_[static_cast<int>(stage)];
    if (!state.told) {
      state.callbacks.push_back(std::move(callback));
      return;
    }
    status = state.status;
  }
  CallGuarded(callback, status);
}

void JobState::set_wait_listener(WaitListener listener) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wait_listener_ = std::move(listener);
}

}  // namespace weft::runtime

namespace weft {

const std::string& Job::matrix() const { return state_->matrix(); }
std::int64_t Job::step() const { return state_->step(); }
absl::StatusOr<bool> Job::Reached(Stage stage) const { return state_->Reached(stage); }
absl::Status Job::WaitOn(Stream& stream, Stage stage) const {
  return state_->WaitOn(stream, stage);
}
absl::Status Job::Wait(Stage stage, absl::Duration timeout) const {
  return state_->Wait(stage, timeout);
}
void Job::OnStage(Stage stage, std::function<void(const absl::Status&)> callback) const {
  state_->OnStage(stage, std::move(callback));
}

}  // namespace weft
