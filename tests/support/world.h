// A world of ranks as threads of the test process, each with a host device and a local transport.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "weft/device.h"
#include "weft/runtime.h"
#include "weft/transport.h"

namespace weft::testing {

// What a rank's thread works with.
struct Rank {
  int rank;
  Device& device;
  Transport& transport;
};

struct WorldOptions {
  ProcessGrid grid;
  absl::Duration deadline = absl::Seconds(120);
  Link intra, inter;  // emulated
};

// Runs `body` on every rank at once and joins. Each rank's device and transport are destroyed when
// its body returns, as when a process ends.
inline void RunWorld(const WorldOptions& options, const std::function<void(Rank)>& body) {
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

inline RuntimeOptions OptionsFor(const ProcessGrid& grid, Strategy strategy = Strategy::kOwner) {
  RuntimeOptions options;
  options.topology.grid = grid;
  options.strategy = strategy;
  options.deadline = absl::Seconds(120);
  return options;
}

}  // namespace weft::testing
