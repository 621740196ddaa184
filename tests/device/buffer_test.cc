#include "weft/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/device.h"
#include "weft/device.h"

namespace weft {
namespace {

TEST(Buffers, BuffersAreAlignedAndAsLongAsAsked) {
  const auto device = testing::NewDevice();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{4096}}) {
    const auto buffer = *device->Allocate(bytes);
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
  }
  EXPECT_EQ((*device->Allocate(0))->bytes(), 0u);
}

TEST(Buffers, ImpossibleBufferIsRefused) {
  const auto device = testing::NewDevice();
  EXPECT_EQ(device->Allocate(std::numeric_limits<std::size_t>::max()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Buffers, CopyAndClearRunInStreamOrder) {
  const auto device = testing::NewDevice();
  constexpr std::size_t kCount = 100;
  constexpr std::size_t kBytes = kCount * sizeof(int);
  const auto from = *device->AllocateHost(kBytes);
  const auto to = *device->Allocate(kBytes);
  const auto kept = *device->Allocate(kBytes);
  std::fill_n(from->as<int>(), kCount, 7);
  {
    const auto stream = device->CreateStream("copies");
    device->Copy(*stream, to->data(), from->data(), kBytes);
    device->Copy(*stream, kept->data(), to->data(), kBytes);
    device->Clear(*stream, to->data(), kBytes);
    ASSERT_TRUE(stream->Synchronize(absl::InfiniteDuration()).ok());
  }
  std::vector<int> seen(kCount, 1);
  ASSERT_TRUE(device->CopyNow(seen.data(), kept->data(), kBytes).ok());
  EXPECT_EQ(seen, std::vector<int>(kCount, 7));
  ASSERT_TRUE(device->CopyNow(seen.data(), to->data(), kBytes).ok());
  EXPECT_EQ(seen, std::vector<int>(kCount, 0));
}

TEST(Buffers, CopyNowTakesAnyMemoryOfTheHost) {
  const auto device = testing::NewDevice();
  const std::vector<int> from = {1, 2, 3};
  std::vector<int> to(3, 0);
  const auto buffer = *device->Allocate(3 * sizeof(int));
  ASSERT_TRUE(device->CopyNow(buffer->data(), from.data(), 3 * sizeof(int)).ok());
  ASSERT_TRUE(device->CopyNow(to.data(), buffer->data(), 3 * sizeof(int)).ok());
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace weft
