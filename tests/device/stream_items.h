// Items of streams for tests.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

#include "absl/time/time.h"
#include "weft/stream.h"

namespace weft::testing {

inline constexpr absl::Duration kForever = absl::InfiniteDuration();

// Blocks stream items until opened.
class Gate {
 public:
  void Open() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void AwaitArrival() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return arrived_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

inline Stream::Work Pass(Gate& gate) {
  return [&gate] {
    gate.Pass();
    return absl::OkStatus();
  };
}

inline Stream::Work Note(std::vector<int>& notes, int value) {
  return [&notes, value] {
    notes.push_back(value);
    return absl::OkStatus();
  };
}

}  // namespace weft::testing
