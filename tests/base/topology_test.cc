#include "weft/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/topology_fields.h"
#include "tests/support/topologies.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Complaint(const Topology& topology) {
  const absl::Status status = Validate(topology);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(Topology, ExtentsHaveOneLimit) {
  for (const ProcessGrid& grid :
       {ProcessGrid{1, 1}, {kMostRanks, 1}, {1, kMostRanks}, {256, 256}}) {
    EXPECT_TRUE(Validate({grid}).ok());
  }
  EXPECT_THAT(Complaint({{0, 1}}), HasSubstr("nodes is 0"));
  EXPECT_THAT(Complaint({{-1, -2}}), HasSubstr("nodes is -1"));
  EXPECT_THAT(Complaint({{1, -2}}), HasSubstr("ranks_per_node is -2"));
  // The product of the last ones in 32 bits is 65536, 0, and 1.
  for (const ProcessGrid& grid :
       {ProcessGrid{kMostRanks, 2}, {65536, 65537}, {65536, 65536}, {2147483647, 2147483647}}) {
    EXPECT_THAT(Complaint({grid}), HasSubstr("more than the 65536 ranks"));
  }
}

TEST(Topology, CountsPerNodeHaveLimits) {
  EXPECT_THAT(Complaint({.nics_per_node = -1}), HasSubstr("nics_per_node is -1"));
  EXPECT_THAT(Complaint({.nics_per_node = kMostRanks + 1}), HasSubstr("nics_per_node is 65537"));
  EXPECT_THAT(Complaint({.root_complexes_per_node = 0}), HasSubstr("root_complexes_per_node is 0"));
  EXPECT_THAT(Complaint({.root_complexes_per_node = kMostRanks + 1}),
              HasSubstr("root_complexes_per_node is 65537"));
  EXPECT_TRUE(Validate({.nics_per_node = kMostRanks, .root_complexes_per_node = kMostRanks}).ok());
}

TEST(Topology, LinkClassesHaveNames) {
  std::set<std::string> names;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(Validate({.intra_class = LinkClass(i)}).ok());
    names.insert(std::string(Name(LinkClass(i))));
  }
  EXPECT_THAT(names, ElementsAre("nvlink", "pcie", "pcie-switch", "shm"));
  EXPECT_THAT(Complaint({.intra_class = LinkClass(4)}), HasSubstr("intra_class is 4"));
}

TEST(Topology, LinksFitTheModel) {
  for (const double latency : {0.0, 0.5, 1e8}) {
    EXPECT_TRUE(Validate({.intra = {.latency_us = latency}}).ok());
  }
  for (const double latency : std::initializer_list<double>{-1, 1.1e8, 1e300, NAN, INFINITY}) {
    EXPECT_THAT(Complaint({.intra = {.latency_us = latency}}), HasSubstr("intra.latency_us is"));
  }
  for (const double bandwidth : {0.0, 1e-4, 1e9}) {
    EXPECT_TRUE(Validate({.inter = {.gigabytes_per_second = bandwidth}}).ok());
  }
  for (const double bandwidth : std::initializer_list<double>{
           -1, 1e-5, std::numeric_limits<double>::denorm_min(), 1e300, NAN, INFINITY}) {
    EXPECT_THAT(Complaint({.inter = {.gigabytes_per_second = bandwidth}}),
                HasSubstr("inter.gigabytes_per_second is"));
    EXPECT_THAT(Complaint({.root_complex_gigabytes_per_second = bandwidth}),
                HasSubstr("root_complex_gigabytes_per_second is"));
  }
}

// Of VisitFields() and OneFieldChanged(), which others are tested against.
TEST(Topology, EveryFieldIsVisited) {
  std::vector<std::string> names;
  const Topology plain{.grid = {2, 2}};
  base::VisitFields(plain, [&](std::string_view name, const auto&) { names.emplace_back(name); });
  const auto changed = testing::OneFieldChanged(plain);
  ASSERT_EQ(changed.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(changed[i].first, names[i]);
    EXPECT_EQ(Validate(changed[i].second), absl::OkStatus()) << names[i];
    EXPECT_NE(changed[i].second, plain) << names[i];
  }
}

std::vector<std::string> NamesOf(const Topology& topology, const std::vector<int>& ranks) {
  const std::vector<SharedResource> resources = SharedResources(topology);
  std::vector<std::string> names;
  for (const ResourceUse& use : ResourcesOf(topology, ranks)) {
    names.push_back(resources.at(use.resource).name + " x" + std::to_string(use.passes));
  }
  return names;
}

TEST(SharedResources, AreRootComplexesAndNicsNodeByNode) {
  const Topology topology{.grid = {2, 4},
                          .inter = {10, 25},
                          .nics_per_node = 1,
                          .root_complexes_per_node = 2,
                          .root_complex_gigabytes_per_second = 20};
  using Kind = SharedResource::Kind;
  EXPECT_EQ(
      SharedResources(topology),
      (std::vector<SharedResource>{{Kind::kRootComplex, "node 0 root complex 0", {0, 1}, {0, 20}},
                                   {Kind::kRootComplex, "node 0 root complex 1", {2, 3}, {0, 20}},
                                   {Kind::kNic, "node 0 nic 0", {0, 1, 2, 3}, {10, 25}},
                                   {Kind::kRootComplex, "node 1 root complex 0", {4, 5}, {0, 20}},
                                   {Kind::kRootComplex, "node 1 root complex 1", {6, 7}, {0, 20}},
                                   {Kind::kNic, "node 1 nic 0", {4, 5, 6, 7}, {10, 25}}}));
}

TEST(SharedResources, WithoutALimitRootComplexesAreNone) {
  const std::vector<SharedResource> resources = SharedResources({.grid = {1, 2}});
  ASSERT_EQ(resources.size(), 2u);
  EXPECT_EQ(resources[1].name, "node 0 nic 1");
  EXPECT_THAT(resources[1].ranks, ElementsAre(1));
  EXPECT_TRUE(ResourcesOf({.grid = {1, 2}}, {0, 1}).empty());
}

TEST(SharedResources, TheLinkClassDecidesWhatPassesTheRootComplex) {
  Topology t{.grid = {2, 4},
             .nics_per_node = 2,
             .root_complexes_per_node = 2,
             .root_complex_gigabytes_per_second = 20};
  for (const LinkClass of : {LinkClass::kPcie, LinkClass::kShm}) {
    t.intra_class = of;
    EXPECT_THAT(NamesOf(t, {4, 5}), ElementsAre("node 1 root complex 0 x2"));
    EXPECT_THAT(NamesOf(t, {0, 1, 2}),
                ElementsAre("node 0 root complex 0 x2", "node 0 root complex 1 x1"));
    EXPECT_THAT(NamesOf(t, {2, 3, 7}),
                ElementsAre("node 0 root complex 1 x2", "node 0 nic 0 x1", "node 0 nic 1 x1",
                            "node 1 root complex 1 x1", "node 1 nic 1 x1"));
  }
  t.intra_class = LinkClass::kPcieSwitch;
  EXPECT_THAT(NamesOf(t, {4, 5}), ElementsAre());
  EXPECT_THAT(NamesOf(t, {0, 1, 2}),
              ElementsAre("node 0 root complex 0 x1", "node 0 root complex 1 x1"));
  EXPECT_THAT(NamesOf(t, {2, 6}), ElementsAre("node 0 root complex 1 x1", "node 0 nic 0 x1",
                                              "node 1 root complex 1 x1", "node 1 nic 0 x1"));
  t.intra_class = LinkClass::kNvlink;
  EXPECT_THAT(NamesOf(t, {0, 1, 2, 3}), ElementsAre());
  EXPECT_THAT(NamesOf(t, {2, 3, 7}),
              ElementsAre("node 0 root complex 1 x1", "node 0 nic 0 x1", "node 0 nic 1 x1",
                          "node 1 root complex 1 x1", "node 1 nic 1 x1"));
  EXPECT_THAT(NamesOf(t, {2}), ElementsAre());
}

RC_GTEST_PROP(SharedResources, SplitTheRanksOfANodeEvenly, ()) {
  Topology t;
  t.grid = {*rc::gen::inRange(1, 4), *rc::gen::inRange(1, 10)};
  t.nics_per_node = *rc::gen::inRange(0, 12);
  t.root_complexes_per_node = *rc::gen::inRange(1, 12);
  t.root_complex_gigabytes_per_second = 1;
  std::map<SharedResource::Kind, std::vector<int>> seen;
  for (const SharedResource& resource : SharedResources(t)) {
    RC_ASSERT(!resource.ranks.empty());
    const int size = static_cast<int>(resource.ranks.size());
    const int wanted =
        resource.kind == SharedResource::Kind::kNic ? t.nics_per_node : t.root_complexes_per_node;
    const int ranks = t.grid.ranks_per_node;
    const int parts = wanted == 0 || wanted > ranks ? ranks : wanted;
    RC_ASSERT(size == ranks / parts || size == (ranks + parts - 1) / parts);
    if (resource.kind == SharedResource::Kind::kRootComplex) {
      RC_ASSERT(resource.ranks.back() - resource.ranks.front() == size - 1);
    }
    for (const int rank : resource.ranks) seen[resource.kind].push_back(rank);
  }
  for (auto& [kind, ranks] : seen) {
    std::sort(ranks.begin(), ranks.end());
    RC_ASSERT(ranks == t.grid.World());
  }
}

TEST(SharedResources, TheLargestNodeFits) {
  const Topology t{.grid = {1, kMostRanks},
                   .root_complexes_per_node = kMostRanks,
                   .root_complex_gigabytes_per_second = 1};
  const std::vector<SharedResource> resources = SharedResources(t);
  ASSERT_EQ(resources.size(), 2u * kMostRanks);
  EXPECT_THAT(resources[kMostRanks - 1].ranks, ElementsAre(kMostRanks - 1));
}

}  // namespace
}  // namespace weft
