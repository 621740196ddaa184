// Factories of the transports in the tree.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "weft/clock.h"
#include "weft/communicator.h"
#include "weft/device.h"
#include "weft/grid.h"
#include "weft/topology.h"

#pragma GCC visibility push(default)
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
  // A directory that all ranks can read and write, empty at the start of a run; or the address of a
  // StoreServer (store_server.h).
  std::string store;
  // Address or name of the interface to listen on.
  std::string host = "127.0.0.1";
  absl::Duration deadline = absl::Minutes(10);
};

// Ranks as processes over TCP. Collective: blocks until all ranks have come to the store, or
// DeadlineExceeded names those that have not.
absl::StatusOr<std::unique_ptr<Transport>> CreateGlooTransport(const GlooTransportOptions& options);

// What keeps collectives of two communicators on one GPU from waiting for each other.
enum class LaunchOrder {
  kAuto,        // kImplicit where that is sure to hold, else kSerialized
  kImplicit,    // NCCL orders launches (NCCL_LAUNCH_ORDER_IMPLICIT=1); they may overlap
  kSerialized,  // each collective starts when the one before it, of any communicator, is over
};

struct NcclTransportOptions {
  int rank = 0;
  int size = 1;
  // A directory that all ranks can read and write, empty at the start of a run; or the address of a
  // StoreServer (store_server.h).
  std::string store;
  // Longest wait for a peer, from when a collective could start.
  absl::Duration deadline = absl::Minutes(10);
  LaunchOrder launch_order = LaunchOrder::kAuto;
  // Thread blocks (channels) that one collective may take; 0 leaves it to NCCL.
  int max_ctas = 0;
};

// Ranks with a GPU each, over NCCL, through libweft-cuda.so like CreateCudaDevice(). Collective:
// blocks until all ranks have come to the store. `device` is the rank's, of kind "cuda", and
// outlives the transport; its clock is the transport's.
//
// Differs from the contract of Communicator: sums are formed in NCCL's order and rounded at every
// hop, so that other transports give other bits (all members that receive a sum get the same), and
// kMax may drop a NaN. Memory is the device's.
absl::StatusOr<std::unique_ptr<Transport>> CreateNcclTransport(const NcclTransportOptions& options,
                                                               Device& device);

}  // namespace weft
#pragma GCC visibility pop
