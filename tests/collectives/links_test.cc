// Laws of the emulated links.
#include "collectives/local/links.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace weft::collectives::local {
namespace {

Operation Broadcast(std::int64_t bytes) { return {OpKind::kBroadcast, nullptr, nullptr, {bytes}}; }

// 2 us + 1 ns per byte inside a node, 10 us + 4 ns per byte between nodes.
Topology Emulated(int nodes, int ranks_per_node, int nics) {
  return {{nodes, ranks_per_node},
          {.latency_us = 2, .gigabytes_per_second = 1},
          {.latency_us = 10, .gigabytes_per_second = 0.25},
          nics};
}

TEST(Links, AnOperationInsideANodeTakesTheIntraTime) {
  Links links(Emulated(2, 3, 0));
  EXPECT_EQ(links.Book(Broadcast(1000), {0, 1, 2}, 500), 500 + 2 * 2000 + 1000);
}

TEST(Links, AnOperationBetweenNodesTakesTheInterTime) {
  Links links(Emulated(3, 2, 0));
  EXPECT_EQ(links.Book(Broadcast(1000), {1, 3, 5}, 0), 2 * 10000 + 4000);
}

TEST(Links, TheWholeGridTakesTheSlowerOfTheTwo) {
  Links slow_inter(Emulated(2, 2, 0));
  EXPECT_EQ(slow_inter.Book(Broadcast(1000), {0, 1, 2, 3}, 0), 3 * 10000 + 4000);
  Topology topology = Emulated(2, 2, 0);
  topology.intra.latency_us = 50;
  Links slow_intra(topology);
  EXPECT_EQ(slow_intra.Book(Broadcast(1000), {0, 1, 2, 3}, 0), 3 * 50000 + 1000);
}

TEST(Links, EveryKindHasItsPattern) {
  const std::vector<int> ranks = {0, 1, 2, 3};
  const auto end = [&](OpKind kind, std::vector<std::int64_t> counts) {
    return Links(Emulated(1, 4, 0))
        .Book({kind, nullptr, nullptr, std::move(counts), DType::kBF16}, ranks, 0);
  };
  const Nanos hops = 3 * 2000;
  EXPECT_EQ(end(OpKind::kBarrier, {}), hops);
  EXPECT_EQ(end(OpKind::kReduce, {4000}), hops + 8000);  // bf16 elements
  EXPECT_EQ(end(OpKind::kBroadcast, {4000}), hops + 4000);
  EXPECT_EQ(end(OpKind::kAllReduce, {4000}), 2 * (hops + 6000));
  EXPECT_EQ(end(OpKind::kReduceScatter, {0, 1000, 1000, 2000}), hops + 6000);
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kGather, OpKind::kScatter}) {
    EXPECT_EQ(end(kind, {0, 1000, 1000, 2000}), hops + 3000);
  }
}

TEST(Links, DisjointInterGroupsOverlapUnlessTheyShareANic) {
  Links own(Emulated(2, 2, 0));
  EXPECT_EQ(own.Book(Broadcast(1000), {0, 2}, 0), 14000);
  EXPECT_EQ(own.Book(Broadcast(1000), {1, 3}, 0), 14000);
  Links shared(Emulated(2, 2, 1));
  EXPECT_EQ(shared.Book(Broadcast(1000), {0, 2}, 0), 14000);
  EXPECT_EQ(shared.Book(Broadcast(1000), {1, 3}, 0), 28000);
}

TEST(Links, FreeLinksTakeNoTimeAndOccupyNothing) {
  Topology topology;
  topology.grid = {2, 2};
  Links links(topology);
  EXPECT_EQ(links.Book(Broadcast(1 << 20), {0, 1, 2, 3}, 7), 7);
  topology = Emulated(2, 2, 0);
  topology.intra = {};
  Links half(topology);
  EXPECT_EQ(half.Book(Broadcast(1000), {0, 1}, 7), 7);
  EXPECT_EQ(half.Book(Broadcast(1000), {0, 1, 2, 3}, 7), 7 + 34000);
  EXPECT_EQ(half.Book(Broadcast(1000), {0, 1}, 8), 8);
}

struct Booked {
  std::vector<int> ranks;
  Nanos arrival = 0, begin = 0, end = 0;
};

// What an operation occupies: rank ports as 0.., NICs after them.
std::vector<int> Occupied(const Topology& topology, const std::vector<int>& ranks) {
  const int local = topology.grid.ranks_per_node;
  const int nics = topology.nics_per_node == 0 ? local : topology.nics_per_node;
  std::vector<int> used;
  for (const int a : ranks) {
    for (const int b : ranks) {
      if (a == b) continue;
      if (a / local == b / local) {
        used.push_back(a);
      } else {
        used.push_back(1000 + a / local * nics + a % local % nics);
      }
    }
  }
  return used;
}

bool Share(const Topology& topology, const Booked& a, const Booked& b) {
  const std::vector<int> of_a = Occupied(topology, a.ranks);
  const std::vector<int> of_b = Occupied(topology, b.ranks);
  return std::find_first_of(of_a.begin(), of_a.end(), of_b.begin(), of_b.end()) != of_a.end();
}

RC_GTEST_PROP(Links, PortsServeOneOperationAtATimeAndNeverIdleBeforeOneThatIsReady, ()) {
  const int nodes = *rc::gen::inRange(1, 4);
  const int local = *rc::gen::inRange(1, 4);
  const Topology topology = Emulated(nodes, local, *rc::gen::inRange(0, 3));
  Links links(topology);
  std::vector<Booked> all;
  Nanos now = 0;
  for (int i = *rc::gen::inRange(1, 30); i > 0; --i) {
    Booked op;
    for (int rank = 0; rank < nodes * local; ++rank) {
      if (*rc::gen::arbitrary<bool>()) op.ranks.push_back(rank);
    }
    if (op.ranks.empty()) continue;
    now += *rc::gen::inRange(0, 30000);
    op.arrival = now;
    const std::int64_t bytes = *rc::gen::inRange(0, 10000);
    // The same operation on idle links gives its length.
    const Nanos length = Links(topology).Book(Broadcast(bytes), op.ranks, 0);
    op.end = links.Book(Broadcast(bytes), op.ranks, op.arrival);
    op.begin = op.end - length;
    RC_ASSERT(op.begin >= op.arrival);
    bool justified = op.begin == op.arrival;
    for (const Booked& earlier : all) {
      if (!Share(topology, op, earlier)) continue;
      RC_ASSERT(op.begin >= earlier.end);
      justified = justified || op.begin == earlier.end;
    }
    RC_ASSERT(justified);
    all.push_back(op);
  }
}

}  // namespace
}  // namespace weft::collectives::local
