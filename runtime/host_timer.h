// What the caller's thread spends inside Weft.
#pragma once

#include <cstdint>

#include "runtime/step_recorder.h"
#include "weft/clock.h"

namespace weft::runtime {

// Adds the caller's time in a scope to a step, less what it spent blocked.
class HostTimer {
 public:
  HostTimer(StepRecorder& recorder, const Clock& clock, std::int64_t step)
      : recorder_(recorder), clock_(clock), step_(step), begin_(clock.Now()) {}
  ~HostTimer() { recorder_.AddHostTime(step_, clock_.Now() - begin_ - blocked_); }
  HostTimer(const HostTimer&) = delete;
  HostTimer& operator=(const HostTimer&) = delete;

  void Blocked(Nanos duration) { blocked_ += duration; }

 private:
  StepRecorder& recorder_;
  const Clock& clock_;
  const std::int64_t step_;
  const Nanos begin_;
  Nanos blocked_ = 0;
};

}  // namespace weft::runtime
