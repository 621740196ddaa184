#include "weft/completion_queue.h"

#include <utility>

#include "base/deadline.h"

namespace weft {

std::optional<Completion> CompletionQueue::Poll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (completions_.empty()) return std::nullopt;
  Completion first = std::move(completions_.front());
  completions_.pop_front();
  return first;
}

std::optional<Completion> CompletionQueue::Next(absl::Duration timeout) {
  const Nanos deadline = base::DeadlineAfter(clock_, timeout);
  std::unique_lock<std::mutex> lock(mutex_);
  while (completions_.empty()) {
    if (!clock_.WaitUntil(changed_, lock, deadline) && completions_.empty()) return std::nullopt;
  }
  Completion first = std::move(completions_.front());
  completions_.pop_front();
  return first;
}

void CompletionQueue::Push(Completion completion) {
  const std::lock_guard<std::mutex> lock(mutex_);
  completions_.push_back(std::move(completion));
  changed_.notify_one();
}

}  // namespace weft
