// What only the host device promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "weft/device.h"

namespace weft {
namespace {

TEST(HostDevice, NeedsAThread) {
  const auto device = CreateHostDevice({.threads = 0});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(device.status().message()), ::testing::HasSubstr("not 0"));
}

TEST(HostIdentity, SaysWhatTheSpeedDependsOn) {
  const DeviceIdentity identity = (*CreateHostDevice({.threads = 2}))->identity();
  EXPECT_NE(identity.name, "");
  EXPECT_EQ(identity.math_library.rfind("oneDNN ", 0), 0u);
  EXPECT_EQ(identity.threads, 2);
}

}  // namespace
}  // namespace weft
