// Laws of the emulated links.
#include "collectives/local/links.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "weft/topology_preset.h"

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

TEST(Links, InAGroupOfTwoOppositeWaysDoNotDisturbEachOther) {
  const auto end = [](OpKind kind, int root, OpKind other, int other_root, int size) {
    Operation op{kind, nullptr, nullptr, {1000}};
    op.root = root;
    Operation joined{other, nullptr, nullptr, {600}};
    joined.root = other_root;
    op.joined.push_back(joined);
    const std::vector<int> ranks = size == 2 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2};
    return Links(Emulated(1, size, 0)).Book(op, ranks, 0);
  };
  constexpr Nanos kHop = 2000;
  const OpKind broadcast = OpKind::kBroadcast, reduce = OpKind::kReduce;
  EXPECT_EQ(end(broadcast, 0, broadcast, 1, 2), kHop + 1000);
  EXPECT_EQ(end(broadcast, 1, broadcast, 1, 2), 2 * kHop + 1600);
  EXPECT_EQ(end(reduce, 0, broadcast, 0, 2), kHop + 4000)
      << "1000 fp32 elements come, 600 bytes go";
  EXPECT_EQ(end(reduce, 0, broadcast, 1, 2), 2 * kHop + 4600);
  // In a larger one they begin at once, and rank 2 gets both.
  EXPECT_EQ(end(broadcast, 0, broadcast, 1, 3), 2 * kHop + 1600);
}

// A gather to each of several members, as of an exchange: the port that carries most decides.
TEST(Links, StraightWaysOfAGroupTakeWhatTheBusiestPortCarries) {
  const auto op = [](OpKind kind) {
    Operation first{kind, nullptr, nullptr, {100, 200, 300, 400}};
    Operation second{kind, nullptr, nullptr, {10, 20, 30, 40}};
    second.root = 3;
    first.joined.push_back(second);
    return first;
  };
  const std::vector<int> ranks = {0, 1, 2, 3};
  for (const OpKind kind : {OpKind::kGather, OpKind::kScatter}) {
    // Rank 0 gets 900 or sends them.
    EXPECT_EQ(Links(Emulated(1, 4, 0)).Book(op(kind), ranks, 0), 3 * 2000 + 900);
    // What goes between nodes passes the NICs: 700 at that of the first node.
    EXPECT_EQ(Links(Emulated(2, 2, 1)).Book(op(kind), ranks, 0), 3 * 10000 + 4 * 700);
  }
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

// The ranks of a node share `root_complexes`, each of 0.5 ns per byte.
Topology WithRootComplexes(Topology topology, int root_complexes) {
  topology.root_complexes_per_node = root_complexes;
  topology.root_complex_gigabytes_per_second = 2;
  return topology;
}

TEST(Links, OperationsBelowOneRootComplexQueueForIt) {
  Links own(WithRootComplexes(Emulated(1, 4, 0), 2));
  EXPECT_EQ(own.Book(Broadcast(1000), {0, 1}, 0), 3000);
  EXPECT_EQ(own.Book(Broadcast(1000), {2, 3}, 0), 3000);
  Links shared(WithRootComplexes(Emulated(1, 4, 0), 1));
  EXPECT_EQ(shared.Book(Broadcast(1000), {0, 1}, 0), 3000);
  EXPECT_EQ(shared.Book(Broadcast(1000), {2, 3}, 0), 500 + 3000) << "one hop of 1000 bytes later";
  EXPECT_EQ(shared.latest_end(), 3500);
}

TEST(Links, EveryHopOfARingPassesTheRootComplex) {
  const auto end = [](OpKind kind, std::vector<std::int64_t> counts, int root_complexes) {
    return Links(WithRootComplexes(Emulated(1, 4, 0), root_complexes))
        .Book({kind, nullptr, nullptr, std::move(counts)}, {0, 1, 2, 3}, 0);
  };
  constexpr Nanos kHops = 3 * 2000;
  // 0.5 ns a byte: three hops of an open chain, four of a ring with 3/4 of the bytes each. Alone,
  // links would be 10000 and 9000.
  EXPECT_EQ(end(OpKind::kBroadcast, {16000}, 1), 24000);
  EXPECT_EQ(end(OpKind::kReduce, {4000}, 1), 24000);
  EXPECT_EQ(end(OpKind::kAllGather, {0, 4000, 4000, 8000}, 1), 24000);
  EXPECT_EQ(end(OpKind::kAllReduce, {4000}, 1), 48000);
  // Two members each.
  EXPECT_EQ(end(OpKind::kBroadcast, {16000}, 2), kHops + 16000);
  EXPECT_EQ(end(OpKind::kAllGather, {0, 4000, 4000, 8000}, 2), kHops + 12000);
  EXPECT_EQ(end(OpKind::kGather, {0, 4000, 4000, 8000}, 1), kHops + 12000) << "at the root's port";
  EXPECT_EQ(end(OpKind::kBarrier, {}, 1), kHops);
}

TEST(Links, TheLinkClassDecidesWhatQueues) {
  Topology topology = WithRootComplexes(Emulated(2, 4, 0), 2);
  topology.intra = {};
  topology.inter = {};
  const auto end = [&](LinkClass link_class, const std::vector<int>& ranks) {
    topology.intra_class = link_class;
    return Links(topology).Book(Broadcast(1000), ranks, 7) - 7;
  };
  for (const LinkClass of : {LinkClass::kPcie, LinkClass::kShm}) {
    EXPECT_EQ(end(of, {0, 1}), 500);
    EXPECT_EQ(end(of, {1, 2}), 500);
    EXPECT_EQ(end(of, {0, 1, 2, 3}), 1000);
    EXPECT_EQ(end(of, {0, 1, 4}), 1000);
  }
  EXPECT_EQ(end(LinkClass::kPcieSwitch, {0, 1}), 0);
  EXPECT_EQ(end(LinkClass::kPcieSwitch, {1, 2}), 500);
  EXPECT_EQ(end(LinkClass::kPcieSwitch, {0, 1, 2, 3}), 500);
  EXPECT_EQ(end(LinkClass::kPcieSwitch, {0, 1, 4}), 500);
  EXPECT_EQ(end(LinkClass::kNvlink, {0, 1, 2, 3}), 0);
  EXPECT_EQ(end(LinkClass::kNvlink, {0, 1, 4}), 500);
}

TEST(Links, WhatWaitsForASlowNicLeavesTheRootComplexToOthers) {
  Links links(WithRootComplexes(Emulated(2, 2, 0), 1));
  EXPECT_EQ(links.Book(Broadcast(10000), {0, 2}, 0), 10000 + 40000);
  // Each node's root complex is busy with it for 5000.
  EXPECT_EQ(links.Book(Broadcast(1000), {0, 1}, 0), 5000 + 3000);
  EXPECT_EQ(links.Book(Broadcast(1000), {1, 3}, 100), 5500 + 14000);
}

// docs/topology.md, Presets.
TEST(Links, PresetsReachTheBandwidthsOfTheirPage) {
  const std::map<std::string_view, double> expected = {
      {"a800-nvlink", 160},   {"h100-nvlink", 360}, {"pcie-48gb-1nic", 10},
      {"pcie-48gb-2nic", 10}, {"l20-pcie", 16},     {"consumer-2", 6.5}};
  ASSERT_EQ(expected.size(), TopologyPresets().size());
  for (const auto& [name, bandwidth] : expected) {
    const Topology node = *Preset(name, 1);
    const double ranks = node.grid.size();
    constexpr std::int64_t kElements = std::int64_t{1} << 32;
    const Nanos end =
        Links(node).Book({OpKind::kAllReduce, nullptr, nullptr, {kElements}}, node.grid.World(), 0);
    // Bus bandwidth as nccl-tests has it, in bytes per nanosecond.
    const double bytes = 4.0 * static_cast<double>(kElements) * 2 * (ranks - 1) / ranks;
    EXPECT_NEAR(bytes / static_cast<double>(end), bandwidth, bandwidth * 0.01) << name;
  }
}

struct Booked {
  std::vector<int> ranks;
  Nanos arrival = 0, begin = 0, end = 0;
  std::map<int, Nanos> until;  // what it occupies
};

// What a broadcast occupies, and for how long: rank ports as 0.., NICs as 1000.. and root complexes
// as 2000... Of two members whose hop passes, the one counts; with pcie all hops pass.
std::map<int, Nanos> Occupied(const Topology& topology, const std::vector<int>& ranks,
                              std::int64_t bytes, Nanos length) {
  const int local = topology.grid.ranks_per_node;
  const int nics = topology.nics_per_node == 0 ? local : topology.nics_per_node;
  const auto root_complex = [&](int rank) {
    return 2000 + rank / local * 100 + rank % local * topology.root_complexes_per_node / local;
  };
  std::map<int, Nanos> used;
  std::map<int, int> members;
  for (const int rank : ranks) ++members[root_complex(rank)];
  for (const int a : ranks) {
    for (const int b : ranks) {
      if (a == b) continue;
      if (a / local == b / local) {
        used[a] = length;
      } else {
        used[1000 + a / local * nics + a % local % nics] = length;
      }
      if (topology.root_complex_gigabytes_per_second > 0) {
        const int hops =
            std::min<int>(members[root_complex(a)], static_cast<int>(ranks.size()) - 1);
        used[root_complex(a)] = static_cast<Nanos>(std::llround(
            static_cast<double>(bytes * hops) / topology.root_complex_gigabytes_per_second));
      }
    }
  }
  return used;
}

RC_GTEST_PROP(Links, ServeOneOperationAtATimeAndNeverIdleBeforeOneThatIsReady, ()) {
  const int nodes = *rc::gen::inRange(1, 4);
  const int local = *rc::gen::inRange(1, 5);
  Topology topology = Emulated(nodes, local, *rc::gen::inRange(0, std::min(3, local + 1)));
  topology.root_complexes_per_node = *rc::gen::inRange(1, local + 1);
  topology.root_complex_gigabytes_per_second = *rc::gen::element(0.0, 0.125, 1.0, 4.0);
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
    for (const auto& [what, busy] : Occupied(topology, op.ranks, bytes, length)) {
      op.until[what] = op.begin + busy;
      for (const Booked& earlier : all) {
        const auto until = earlier.until.find(what);
        if (until == earlier.until.end()) continue;
        // Halves of a nanosecond may be rounded either way.
        RC_ASSERT(op.begin >= until->second - 1);
        justified = justified || std::abs(op.begin - until->second) <= 1;
      }
    }
    RC_ASSERT(justified);
    all.push_back(op);
  }
}

}  // namespace
}  // namespace weft::collectives::local
