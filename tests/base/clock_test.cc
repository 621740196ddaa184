#include "weft/clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace weft {
namespace {

TEST(SteadyClock, DoesNotRunBackwards) {
  const Nanos first = Clock::Steady().Now();
  EXPECT_LE(first, Clock::Steady().Now());
}

TEST(SteadyClock, WaitReturnsFalseOncePastTheDeadline) {
  std::mutex mutex;
  std::condition_variable cv;
  std::unique_lock<std::mutex> lock(mutex);
  EXPECT_FALSE(Clock::Steady().WaitUntil(cv, lock, Clock::Steady().Now() - 1));
}

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  EXPECT_EQ(clock.Now(), 0);
  clock.Advance(5);
  EXPECT_EQ(clock.Now(), 5);
}

TEST(ManualClock, WakesAWaiterWhoseDeadlineHasPassed) {
  ManualClock clock;
  std::mutex mutex;
  std::condition_variable cv;
  std::thread waiter([&] {
    std::unique_lock<std::mutex> lock(mutex);
    while (clock.WaitUntil(cv, lock, 100)) {
    }
  });
  clock.Advance(100);
  waiter.join();
  EXPECT_EQ(clock.Now(), 100);
}

TEST(ManualClockDeathTest, RefusesToRunBackwards) {
  ManualClock clock;
  EXPECT_DEATH(clock.Advance(-1), "time does not run backwards");
}

}  // namespace
}  // namespace weft
