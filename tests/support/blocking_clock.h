// A clock for threads that stand for ranks under the fakes.
#pragma once

#include <condition_variable>
#include <mutex>

#include "tests/fakes/fake.h"
#include "weft/clock.h"

namespace weft::testing {

// Tells the fakes when a thread waits.
class BlockingClock final : public Clock {
 public:
  Nanos Now() const override { return Clock::Steady().Now(); }
  bool WaitUntil(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
                 Nanos deadline) override {
    const fakes::Blocked blocked;
    return Clock::Steady().WaitUntil(cv, lock, deadline);
  }
};

}  // namespace weft::testing
