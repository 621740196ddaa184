// Worlds of host devices over the local transport.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/world.h"

namespace weft::testing {

void RunLocalWorld(const WorldOptions& options, const std::function<void(Rank)>& body) {
  LocalTransportOptions local;
  local.topology.grid = options.grid;
  local.topology.intra = options.intra;
  local.topology.inter = options.inter;
  local.deadline = options.deadline;
  auto transports = CreateLocalTransports(local);
  ASSERT_TRUE(transports.ok()) << transports.status();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.grid.size(); ++rank) {
    threads.emplace_back([&body, rank, transport = std::move((*transports)[rank])] {
      auto device = CreateHostDevice();
      ASSERT_TRUE(device.ok()) << device.status();
      body({rank, **device, *transport});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace weft::testing
