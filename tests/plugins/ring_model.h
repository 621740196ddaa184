// NCCL 2.28.9's side of the tuner, written anew: the costs of Broadcast and Reduce on a ring, which
// entry of a table it takes, and how many channels.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "plugins/nccl/tuner_abi.h"

namespace weft::testing {

struct Ring {
  std::size_t ranks = 4;
  std::size_t nodes = 1;
  double gbps = 12;  // of all channels together
  int channels = 2;
  bool same_channels = true;  // all channels have the ranks in one order
  bool nvlink = false;
  bool ll128 = false;
  int simple_threads = 256;
};

// The constants that NCCL hands to version 5.
const nccl_plugin::TunerConstantsV5& DefaultConstants();

using Table = std::vector<float>;  // [algorithms][protocols]

// -1 wherever NCCL offers nothing.
Table CostsOf(const Ring& ring, std::size_t bytes, int pipe_ops);

// Algorithm and protocol of the cheapest entry; nothing: the collective fails.
std::optional<std::pair<int, int>> Pick(const Table& table,
                                        int protocols = nccl_plugin::kProtocols);

// How many channels a collective of so many bytes runs on; `advised` of 0 is NCCL's own number.
int ChannelsOf(const Ring& ring, int protocol, std::size_t bytes, int advised);

}  // namespace weft::testing
