// Delivers the stages of many jobs, in the order in which they happen, to whoever asks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "weft/clock.h"
#include "weft/job.h"
#include "weft/plan.h"

#pragma GCC visibility push(default)
namespace weft {

struct Completion {
  MatrixId matrix = -1;
  std::int64_t step = 0;
  Stage stage = Stage::kSubmitted;
  absl::Status status;
};

// Thread-safe; one queue may serve several consumers. Given to a runtime in its options, it must
// outlive the runtime. A queue is one rank's: a completion does not say whose it is, so ranks that
// are threads of one process need one each. It has no bound: each job leaves kStageCount
// completions per step, and whoever gives a queue and does not take them out lets it grow as long
// as training runs.
class CompletionQueue {
 public:
  explicit CompletionQueue(Clock& clock = Clock::Steady()) : clock_(clock) {}

  // The oldest completion, or nothing if there is none now.
  std::optional<Completion> Poll();
  // Blocks until there is one or `timeout` has passed (then nothing).
  std::optional<Completion> Next(absl::Duration timeout);

  void Push(Completion completion);

 private:
  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Completion> completions_;
};

}  // namespace weft
#pragma GCC visibility pop
