// A step does not make the host wait for the device.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda/stream_trainer.h"
#include "tests/fakes/fake.h"
#include "tests/support/fake_world.h"

namespace weft {
namespace {

using testing::Scenario;

thread_local std::int64_t blocked_before = 0;

class NoWait : public ::testing::TestWithParam<Scenario> {};

// As many steps as may be under way. The first counts too: what is allocated or loaded late is
// then.
TEST_P(NoWait, TwoStepsAreEnqueuedAtOnce) {
  Scenario scenario = GetParam();
  scenario.before_steps = [] { blocked_before = fakes::TimesBlocked(); };
  scenario.after_steps = [](int) { EXPECT_EQ(fakes::TimesBlocked() - blocked_before, 0); };
  (void)TrainOnStreams(scenario, 2);
}

// A gradient without an event is copied before Submit() returns: the host waits for its last
// readers.
std::vector<Scenario> WithEvents() {
  std::vector<Scenario> all = testing::Scenarios();
  std::erase_if(all, [](const Scenario& each) { return each.gradient_now; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, NoWait, ::testing::ValuesIn(WithEvents()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace weft
