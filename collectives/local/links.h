// The emulated links of the local transport: which ports an operation occupies, and until when.
#pragma once

#include <mutex>
#include <vector>

#include "collectives/operation.h"
#include "weft/clock.h"
#include "weft/topology.h"

namespace weft::collectives::local {

// Every rank has a port to its node; every node has its NICs, and a rank uses NIC (local rank mod
// number of NICs). An operation among the ranks of one node occupies its members' ports. One that
// spans nodes occupies its members' NICs, and, where a node has several members, those members'
// ports too. It begins when the last member has come and its ports are free, takes
// base::CollectiveSeconds() of the slower link class in use, and occupies its ports until it ends.
// Port order is booking order. Thread-safe.
class Links {
 public:
  explicit Links(const Topology& topology);

  // Books an operation of all of `world_ranks` whose last member came at `arrival`; its end.
  // `arrival` itself where no link in use is emulated.
  Nanos Book(const Operation& op, const std::vector<int>& world_ranks, Nanos arrival);

  // The latest end booked, 0 before the first.
  Nanos latest_end() const;

 private:
  std::size_t NicOf(int world_rank) const;

  const Topology topology_;
  const int nics_;
  const bool intra_emulated_;
  const bool inter_emulated_;

  mutable std::mutex mutex_;
  std::vector<Nanos> port_free_;  // by world rank
  std::vector<Nanos> nic_free_;   // by node, then NIC
  Nanos latest_end_ = 0;
};

}  // namespace weft::collectives::local
