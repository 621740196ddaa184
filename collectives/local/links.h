// The emulated links of the local transport: what an operation occupies, and until when.
#pragma once

#include <mutex>
#include <vector>

#include "collectives/operation.h"
#include "weft/clock.h"
#include "weft/topology.h"

namespace weft::collectives::local {

// Every rank has a port to its node; every node has its NICs and root complexes (ResourcesOf()). An
// operation among the ranks of one node occupies its members' ports. One that spans nodes occupies
// its members' NICs, and, where a node has several members, those members' ports too. Either may
// pass root complexes. It begins when the last member has come and all that it uses is free, and
// takes the longest of base::CollectiveSeconds() of the link classes in use and of what it has to
// send through each root complex. It occupies ports and NICs until it ends, a root complex for as
// long as that alone takes: while a slow NIC is waited for, others may pass. All of them serve in
// booking order. Operations joined to one are booked with it and begin at once: in a group of two
// those that go opposite ways use both directions of its links, in larger ones the port that
// carries most one way decides. Thread-safe.
class Links {
 public:
  explicit Links(const Topology& topology);

  // Books an operation of all of `world_ranks` whose last member came at `arrival`; its end.
  // `arrival` itself where no link in use is emulated.
  Nanos Book(const Operation& op, const std::vector<int>& world_ranks, Nanos arrival);

  // The latest end booked, 0 before the first.
  Nanos latest_end() const;

 private:
  const Topology topology_;
  const std::vector<SharedResource> resources_;
  const bool intra_emulated_;
  const bool inter_emulated_;
  std::vector<int> nic_of_;  // by world rank, as in resources_

  mutable std::mutex mutex_;
  std::vector<Nanos> port_free_;      // by world rank
  std::vector<Nanos> resource_free_;  // as in resources_
  Nanos latest_end_ = 0;
};

}  // namespace weft::collectives::local
