// Each test of the program has fakes of its own, and fails with what they find.
#include <gtest/gtest.h>

#include "tests/fakes/fake.h"
#include "tests/support/seed.h"

namespace weft::testing {
namespace {

class FakesOfEachTest : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    fakes::Reset({.devices = 2, .seed = Seed(), .pace = fakes::Pace::kEager});
  }
  void OnTestEnd(const ::testing::TestInfo&) override {
    fakes::CheckLeaks();
    EXPECT_EQ(fakes::FaultText(), "");
  }
};

[[maybe_unused]] const bool listening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new FakesOfEachTest);
  return true;
}();

}  // namespace
}  // namespace weft::testing
