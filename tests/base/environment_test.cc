#include "base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace weft::base {
namespace {

TEST(Environment, WhatIsSetLaterWasNotThereAtTheStart) {
  ASSERT_EQ(setenv("WEFT_TEST_LATER", "1", 1), 0);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(EnvironmentVariable("WEFT_TEST_LATER"), "1");
  EXPECT_EQ(EnvironmentVariableAtStart("WEFT_TEST_LATER"), std::nullopt);
}

TEST(Environment, WhatIsChangedLaterIsAsItWas) {
  const std::optional<std::string> path = EnvironmentVariable("PATH");
  ASSERT_TRUE(path.has_value());
  EXPECT_EQ(EnvironmentVariableAtStart("PATH"), path);
  ASSERT_EQ(setenv("PATH", "elsewhere", 1), 0);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(EnvironmentVariableAtStart("PATH"), path);
  ASSERT_EQ(setenv("PATH", path->c_str(), 1), 0);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(EnvironmentVariableAtStart("PAT"), std::nullopt) << "a name, not its beginning";
}

}  // namespace
}  // namespace weft::base
