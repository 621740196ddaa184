// Worlds of GPUs over NCCL, under the fakes.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/fake.h"
#include "tests/support/blocking_clock.h"
#include "tests/support/fake_world.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/world.h"

namespace weft::testing {
FakeWorldOptions& FakeWorld() {
  static FakeWorldOptions options;
  return options;
}

void RunFakeWorld(const WorldOptions& options, const std::function<void(Rank)>& body) {
  static std::atomic<std::uint64_t> worlds{0};
  fakes::Options fake = FakeWorld().fakes;
  fake.devices = options.grid.size();
  fake.host_threads = options.grid.size();
  fake.seed = Seed() + worlds++;
  fakes::Reset(fake);
  ::setenv("WEFT_CUDA_PLUGIN", WEFT_CUDA_LIBRARY, 1);
  if (FakeWorld().prepare) FakeWorld().prepare();
  const TemporaryFolder store;
  BlockingClock real_clock;
  Clock* const clock = FakeWorld().clock != nullptr ? FakeWorld().clock : &real_clock;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.grid.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const fakes::HostThread host_thread;
      auto device =
          CreateCudaDevice({.ordinal = rank, .workspace_bytes = kFakeWorkspace, .clock = clock});
      ASSERT_TRUE(device.ok()) << device.status();
      auto transport = CreateNcclTransport({.rank = rank,
                                            .size = options.grid.size(),
                                            .store = store.path(),
                                            .deadline = options.deadline,
                                            .launch_order = FakeWorld().launch_order},
                                           **device);
      ASSERT_TRUE(transport.ok()) << transport.status();
      body({rank, **device, **transport});
    });
  }
  for (std::thread& thread : threads) thread.join();
  fakes::CheckLeaks();
  if (!FakeWorld().faults_expected) {
    EXPECT_EQ(fakes::FaultText(), "") << "fakes seed " << fake.seed;
  }
}

}  // namespace weft::testing
