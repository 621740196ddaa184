// Factories of the transports in the tree.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "weft/clock.h"
#include "weft/communicator.h"
#include "weft/grid.h"
#include "weft/topology.h"

namespace weft {

struct LocalTransportOptions {
  // Extents, and links to emulate: an operation completes no earlier than the alpha-beta model of
  // its links says, and operations that share a port or NIC queue for it. Links of bandwidth 0 and
  // latency 0 (the default) are not emulated.
  Topology topology;
  // Longest wait for a peer.
  absl::Duration deadline = absl::Minutes(10);
  // Null means Clock::Steady(). Must outlive the transports.
  Clock* clock = nullptr;
};

// Ranks as threads of this process: one transport per rank, in rank order. They share state that
// lives until the last of them is destroyed; each may be destroyed at any time (which its peers see
// as the rank having left).
absl::StatusOr<std::vector<std::unique_ptr<Transport>>> CreateLocalTransports(
    const LocalTransportOptions& options);

struct GlooTransportOptions {
  int rank = 0;
  int size = 1;
  // A directory that all ranks can read and write, empty at the start of a run.
  std::string store;
  // Address or name of the interface to listen on.
  std::string host = "127.0.0.1";
  absl::Duration deadline = absl::Minutes(10);
};

// Ranks as processes over TCP. Collective: blocks until all ranks have come to the store, or
// DeadlineExceeded names those that have not.
absl::StatusOr<std::unique_ptr<Transport>> CreateGlooTransport(const GlooTransportOptions& options);

}  // namespace weft
