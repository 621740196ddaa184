// What collectives take of which links, worked out by hand.
#include "scheduler/transfers.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"

namespace weft::testing {
namespace {

using scheduler::Transfer;
using scheduler::Transfers;

// Two nodes of two ranks; a gigabyte takes a port 1/4 s, the node's NIC 1/2 s, its root complex
// 1/8.
Topology SmallNodes() {
  Topology topology;
  topology.grid = {2, 2};
  topology.intra = {1000, 4};
  topology.inter = {2000, 2};
  topology.nics_per_node = 1;
  topology.root_complex_gigabytes_per_second = 8;
  return topology;
}

// Ops of one matrix of a gigabyte, all on the lane of their group.
class Collectives {
 public:
  explicit Collectives(const Topology& topology) : model_(topology) {
    plan_.topology = topology;
    plan_.matrices = {Matrix("a", 10000, 25000)};
    plan_.groups = {{"world", {{0, 1, 2, 3}}}, {"intra", {{0, 1}, {2, 3}}}, {"inter 1", {{1, 3}}}};
  }

  Collectives& Add(OpKind kind, int group, CollectiveForm form = CollectiveForm::kDirect) {
    Op op{};
    op.kind = kind;
    op.matrix = 0;
    op.group = group;
    op.root = 0;
    op.form = form;
    op.bytes = 1'000'000'000;
    plan_.ops.push_back(op);
    return *this;
  }
  Plan& plan() { return plan_; }

  Transfer Of(std::int32_t op, int part) const {
    Transfers transfers(plan_, model_);
    const std::int32_t id = transfers.Of(op, part);
    return transfers.all()[id];
  }

 private:
  Plan plan_;
  const CostModel model_;
};

// By name of the link.
std::map<std::string, double> Shares(const Topology& topology, const Transfer& transfer) {
  const std::vector<SharedResource> resources = SharedResources(topology);
  std::map<std::string, double> shares;
  for (const scheduler::LinkUse& use : transfer.uses) {
    const int port = use.link - static_cast<int>(resources.size());
    shares[port < 0 ? resources[use.link].name : "port " + std::to_string(port)] = use.share;
  }
  return shares;
}

using Expected = std::map<std::string, double>;

TEST(Transfers, InsideANodePortsAreFullAndTheRootComplexHalf) {
  Collectives ops(SmallNodes());
  const Transfer broadcast = ops.Add(OpKind::kBroadcast, 1).Of(0, 1);
  EXPECT_DOUBLE_EQ(broadcast.seconds, 0.251);
  EXPECT_DOUBLE_EQ(broadcast.latency, 0.001);
  EXPECT_DOUBLE_EQ(broadcast.full_rate, 4e9);
  EXPECT_EQ(Shares(SmallNodes(), broadcast),
            (Expected{{"port 2", 1}, {"port 3", 1}, {"node 1 root complex 0", 0.5}}));
}

TEST(Transfers, BetweenNodesTheNicIsFullAndNoPortIsUsed) {
  Collectives ops(SmallNodes());
  const Transfer reduce = ops.Add(OpKind::kReduce, 2).Of(0, 0);
  EXPECT_DOUBLE_EQ(reduce.seconds, 0.502);
  EXPECT_DOUBLE_EQ(reduce.full_rate, 2e9);
  EXPECT_EQ(Shares(SmallNodes(), reduce), (Expected{{"node 0 nic 0", 1},
                                                    {"node 0 root complex 0", 0.25},
                                                    {"node 1 nic 0", 1},
                                                    {"node 1 root complex 0", 0.25}}));
}

// A port carries 3/2 of the payload of an all-reduce of four, which the NIC takes 3/4 s for, a port
// 3/8 s and a root complex, which two hops of the ring pass, 3/8 s.
TEST(Transfers, AcrossTheWorldAllLinksAreUsed) {
  Collectives ops(SmallNodes());
  const Transfer reduce = ops.Add(OpKind::kAllReduce, 0).Of(0, 0);
  EXPECT_DOUBLE_EQ(reduce.full_rate, 2e9);
  Expected shares;
  for (const int node : {0, 1}) {
    shares["node " + std::to_string(node) + " nic 0"] = 1;
    shares["node " + std::to_string(node) + " root complex 0"] = 0.5;
  }
  for (const int rank : {0, 1, 2, 3}) shares["port " + std::to_string(rank)] = 0.5;
  EXPECT_EQ(Shares(SmallNodes(), reduce), shares);
  // Half of it carries half as much, over the same links.
  const Transfer half = ops.Add(OpKind::kReduceScatter, 0).Of(1, 0);
  EXPECT_EQ(Shares(SmallNodes(), half), shares);
  EXPECT_DOUBLE_EQ(half.seconds - half.latency, 0.375);
}

// The chain of a broadcast is not closed, so that on a node alone it passes once less than a ring.
TEST(Transfers, ARootedChainPassesOnceLessThanARing) {
  Topology node = SmallNodes();
  node.grid = {1, 4};
  node.intra.latency_us = 0;
  Collectives ops(node);
  // Ring of four: an all-gather carries 3/4 of the payload, and four hops pass.
  const Transfer ring = ops.Add(OpKind::kAllGather, 0).Of(0, 0);
  EXPECT_DOUBLE_EQ(ring.seconds - ring.latency, 0.75 * 4 / 8);
  EXPECT_EQ(Shares(node, ring).at("node 0 root complex 0"), 1);
  EXPECT_EQ(Shares(node, ring).at("port 2"), 0.5);
  const Transfer chain = ops.Add(OpKind::kBroadcast, 0).Of(1, 0);
  EXPECT_DOUBLE_EQ(chain.seconds - chain.latency, 1.0 * 3 / 8);
  EXPECT_EQ(Shares(node, chain).at("node 0 root complex 0"), 1);
  EXPECT_DOUBLE_EQ(Shares(node, chain).at("port 2"), 2.0 / 3);
}

// Both of a pair at once: a NIC carries each its way, a root complex both.
TEST(Transfers, APairFillsBothWaysOfTheNic) {
  Collectives ops(SmallNodes());
  ops.Add(OpKind::kBroadcast, 2).Add(OpKind::kBroadcast, 2);
  ops.plan().ops[0].with_next = true;
  ops.plan().ops[1].root = 1;
  const Transfer pair = ops.Of(0, 0);
  EXPECT_DOUBLE_EQ(pair.seconds - pair.latency, 0.5);
  EXPECT_DOUBLE_EQ(pair.full_rate, 2e9);
  EXPECT_EQ(Shares(SmallNodes(), pair).at("node 0 nic 0"), 1);
  EXPECT_EQ(Shares(SmallNodes(), pair).at("node 1 root complex 0"), 0.5);
}

// Scatter and all-gather: each carries half of the payload in a group of two.
TEST(Transfers, ASplitFormIsBothOfItsParts) {
  Collectives ops(SmallNodes());
  const Transfer split = ops.Add(OpKind::kBroadcast, 2, CollectiveForm::kSplit).Of(0, 0);
  EXPECT_DOUBLE_EQ(split.seconds, 2 * (0.002 + 0.25));
  EXPECT_DOUBLE_EQ(split.latency, 0.004);
  EXPECT_DOUBLE_EQ(split.full_rate, 2e9);
}

TEST(Transfers, LinksThatTakeNoTimeAreNotUsed) {
  Topology latency_only = SmallNodes();
  latency_only.intra.gigabytes_per_second = 0;
  latency_only.root_complex_gigabytes_per_second = 0;
  Collectives ops(latency_only);
  const Transfer broadcast = ops.Add(OpKind::kBroadcast, 1).Of(0, 0);
  EXPECT_DOUBLE_EQ(broadcast.seconds, 0.001);
  EXPECT_DOUBLE_EQ(broadcast.latency, 0.001);
  EXPECT_TRUE(broadcast.uses.empty());
}

}  // namespace
}  // namespace weft::testing
