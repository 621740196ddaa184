// What the tuner advises for one collective: a pure function of what all ranks of the communicator
// hold alike, because ranks that take different channels hang or corrupt each other.
#pragma once

#include <cstddef>

#include "plugins/nccl/tuner_abi.h"
#include "plugins/nccl/tuner_config.h"

namespace weft::nccl_plugin {

// What a communicator tells at its creation, the same on all its ranks.
struct Communicator {
  std::size_t ranks = 0;
  std::size_t nodes = 0;
  bool nvlink_spans_nodes = false;
  // us, of NCCL's ring and tree rows: what a launch costs, and a hop over a link.
  double base[kProtocols] = {};
  double hop[kHardwareLinks][2][kProtocols] = {};
  double channel_gbps = 0;  // what one channel of a ring carries at most
};

// NCCL 2.28.9's own constants, for version 4, which does not hand them over.
Communicator WithDefaultConstants(std::size_t ranks, std::size_t nodes);

// With the constants that NCCL hands over; `domains` and `constants` may be null.
Communicator WithConstants(std::size_t ranks, std::size_t nodes, const NvlDomainsV5* domains,
                           const TunerConstantsV5* constants);

struct Advice {
  int protocol = -1;  // -1: NCCL's own choice
  int channels = 0;   // 0: NCCL's own number
};

// `ring` is the ring's row of the cost table, in us. -1: NCCL does not offer the protocol.
Advice Advise(const TunerConfig& config, const Communicator& communicator, int function,
              std::size_t bytes, int pipe_ops, const float ring[kProtocols]);

// Makes `protocol` the cheapest entry of the ring's row of `protocols` entries by making those that
// are not dearer than it a little dearer, so that NCCL's estimate of its time stays what it was.
// Entries that NCCL does not offer, and rows in which `protocol` is not offered, are left alone.
void Prefer(int protocol, float* ring, int protocols);

}  // namespace weft::nccl_plugin
