#include "weft/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "weft/device.h"

namespace weft {
namespace {

TEST(HostDevice, NeedsAThread) {
  const auto device = CreateHostDevice({.threads = 0});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(device.status().message()), ::testing::HasSubstr("not 0"));
}

TEST(HostDevice, BuffersAreAlignedAndAsLongAsAsked) {
  auto device = *CreateHostDevice();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{4096}}) {
    const auto buffer = *device->Allocate(bytes);
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
  }
  EXPECT_EQ((*device->Allocate(0))->bytes(), 0u);
}

TEST(HostDevice, ImpossibleBufferIsRefused) {
  auto device = *CreateHostDevice();
  EXPECT_EQ(device->Allocate(std::numeric_limits<std::size_t>::max()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(HostDevice, CopyAndClearRunInStreamOrder) {
  auto device = *CreateHostDevice();
  std::vector<int> from(100, 7);
  std::vector<int> to(100, 1);
  std::vector<int> kept(100, 1);
  auto stream = device->CreateStream("copies");
  device->Copy(*stream, to.data(), from.data(), 400);
  device->Copy(*stream, kept.data(), to.data(), 400);
  device->Clear(*stream, to.data(), 400);
  ASSERT_TRUE(stream->Synchronize(absl::InfiniteDuration()).ok());
  EXPECT_EQ(kept, from);
  EXPECT_EQ(to, std::vector<int>(100, 0));
}

}  // namespace
}  // namespace weft
