// Worlds of GPUs over NCCL, under the fakes, and how they are set up.
#pragma once

#include <cstddef>
#include <functional>

#include "tests/fakes/fake.h"
#include "tests/support/world.h"
#include "weft/transport.h"

namespace weft::testing {

// Of a device's streams: less than usual, which the fakes would have to write on.
inline constexpr std::size_t kFakeWorkspace = std::size_t{1} << 20;

struct FakeWorldOptions {
  // Devices and seed are the world's own. Sums are formed as on the host, so that what is compared
  // with it bit by bit can be.
  fakes::Options fakes = {.sum_order = fakes::SumOrder::kAscending};
  LaunchOrder launch_order = LaunchOrder::kAuto;
  bool faults_expected = false;
  // Which tells the fakes when a thread waits. Null: a BlockingClock.
  Clock* clock = nullptr;
  std::function<void()> prepare;  // after Reset()
};

// Of all worlds from now on.
FakeWorldOptions& FakeWorld();

// As RunWorld(): GPUs over NCCL, under the fakes, whose faults are the calling test's. Links are
// not emulated.
void RunFakeWorld(const WorldOptions& options, const std::function<void(Rank)>& body);

}  // namespace weft::testing
