// A world of ranks as threads of the test process, each with a device and a transport.
#pragma once

#include <functional>

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
// its body returns, as when a process ends. What they are is the test program's choice: those of
// RunLocalWorld(), or of RunFakeWorld() in fake_world.h.
void RunWorld(const WorldOptions& options, const std::function<void(Rank)>& body);

// Calls `wait`, in which a rank waits for another by means that its device does not see.
void Blocking(const std::function<void()>& wait);

// Host devices over the local transport.
void RunLocalWorld(const WorldOptions& options, const std::function<void(Rank)>& body);

inline RuntimeOptions OptionsFor(const ProcessGrid& grid, Strategy strategy = Strategy::kOwner) {
  RuntimeOptions options;
  options.topology.grid = grid;
  options.strategy = strategy;
  options.deadline = absl::Seconds(120);
  return options;
}

}  // namespace weft::testing
