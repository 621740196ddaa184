// The shared part of a job handle: which stages are reached, and who wants to know.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/annotate.h"
#include "weft/clock.h"
#include "weft/completion_queue.h"
#include "weft/event.h"
#include "weft/plan.h"
#include "weft/stream.h"

namespace weft::runtime {

// Told how long a host thread waited.
using WaitListener = std::function<void(std::int64_t step, Nanos begin, Nanos end)>;

// Thread-safe: issued to from the caller's thread, completed from lane threads.
class JobState {
 public:
  // `label` is the matrix's name to a tool.
  JobState(std::string matrix, MatrixId id, std::int64_t step, Clock& clock,
           CompletionQueue* completions, base::Label label)
      : matrix_(std::move(matrix)),
        id_(id),
        step_(step),
        clock_(clock),
        completions_(completions),
        lifetime_(base::Category::kJob, label, step) {}

  const std::string& matrix() const { return matrix_; }
  std::int64_t step() const { return step_; }

  // The work towards `stage` is in its stream; `event` marks its end.
  void MarkIssued(Stage stage, std::shared_ptr<Event> event);
  // Completes `stage` once all stages before it are. The first call for a stage wins.
  void MarkReached(Stage stage, const absl::Status& status);
  // Completes every stage that is still open with `status`.
  void FailOpenStages(const absl::Status& status);

  bool Done(Stage stage) const;
  absl::StatusOr<bool> Reached(Stage stage) const;
  absl::Status WaitOn(Stream& stream, Stage stage) const;
  absl::Status Wait(Stage stage, absl::Duration timeout) const;
  void OnStage(Stage stage, std::function<void(const absl::Status&)> callback);

  void set_wait_listener(WaitListener listener);

 private:
  struct StageState {
    bool issued = false;
    bool arrived = false;  // its work has run, but maybe not yet that of a stage before it
    bool done = false;
    bool told = false;  // to the completion queue and the callbacks
    absl::Status status;
    std::shared_ptr<Event> event;
    std::vector<std::function<void(const absl::Status&)>> callbacks;
  };

  absl::Status NotIssued(Stage stage) const;
  void Tell();

  const std::string matrix_;
  const MatrixId id_;
  const std::int64_t step_;
  Clock& clock_;
  CompletionQueue* const completions_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::array<StageState, kStageCount> stages_;
  base::LongRange lifetime_;
  bool telling_ = false;  // a thread is in Tell(), which tells what the others complete too
  WaitListener wait_listener_;
};

}  // namespace weft::runtime
