#include "weft/strategy_switch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/scheduler/priced.h"
#include "tests/scheduler/requests.h"
#include "tests/support/property.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kCases = 50;

// Replicated matrices whose gradients have been reduced: owners publish between nodes, those of
// node_local have nothing to say to each other.
PlanRequest Reduced(int matrices, double flops, Link inter) {
  PlanRequest request;
  request.topology.grid = {1, 2};
  request.topology.intra = {0, 100};
  request.topology.inter = inter;
  request.limits.bucket_bytes = 0;
  for (int m = 0; m < matrices; ++m) {
    PlanMatrix matrix;
    matrix.name = "m" + std::to_string(m);
    matrix.rows = matrix.cols = 1000;
    matrix.gradient = GradientKind::kReduced;
    matrix.flops = flops;
    request.matrices.push_back(matrix);
  }
  return request;
}

CostModel OnlyProducts(const Topology& topology) {
  constexpr double kAtOnce = std::numeric_limits<double>::infinity();
  return CostModel(topology,
                   {.flops_per_second = 1e12, .bytes_per_second = kAtOnce, .launch_seconds = 0});
}

double StepOf(PlanRequest request, int nodes, Strategy strategy) {
  request.topology.grid.nodes = nodes;
  request.strategy = strategy;
  const CostModel model = OnlyProducts(request.topology);
  request.forms = ChooseForms(model);
  return EvaluatePlan(*BuildPlan(request), model)->step_seconds;
}

bool NodeLocalWins(const PlanRequest& request, int nodes) {
  return StepOf(request, nodes, Strategy::kNodeLocal) < StepOf(request, nodes, Strategy::kOwner);
}

// A latency per node that each broadcast has to pass: with 24 matrices of 1 ms of Newton-Schulz,
// two nodes save 6 ms of the 12 that two ranks take; on many nodes little is left to save, and each
// broadcast takes longer.
TEST(StrategySwitch, IsWhereTheStepsCross) {
  const PlanRequest request = Reduced(24, 1e9, {50, 0});
  const auto found = FindSwitch(request, OnlyProducts(request.topology), 48);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_THAT(found->changes, ElementsAre(found->nodes));
  ASSERT_GT(found->nodes, 2);
  EXPECT_FALSE(NodeLocalWins(request, found->nodes - 1));
  EXPECT_TRUE(NodeLocalWins(request, found->nodes));
  EXPECT_EQ(found->points.back().nodes, 48);
  EXPECT_TRUE(NodeLocalWins(request, 48));
  EXPECT_EQ(found->reason, "owner is predicted to be no slower below " +
                               std::to_string(found->nodes) + " nodes, node_local faster from " +
                               std::to_string(found->nodes) + " on; looked at up to 48.");
}

TEST(StrategySwitch, ThereIsNoneWhereLinksCostNothing) {
  const PlanRequest request = Reduced(24, 1e9, {});
  const auto found = FindSwitch(request, OnlyProducts(request.topology), 20);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->changes, IsEmpty());
  EXPECT_EQ(found->nodes, 0);
  EXPECT_EQ(found->reason, "owner is predicted to be no slower than node_local on 1 to 20 nodes.");
  std::vector<int> nodes;
  for (const SwitchPoint& point : found->points) nodes.push_back(point.nodes);
  EXPECT_THAT(nodes, ElementsAre(1, 2, 3, 4, 6, 8, 12, 16, 20));
}

// Where an owner's work is nothing, there is nothing to share among nodes.
TEST(StrategySwitch, IsAtTwoNodesWhereThereIsNothingToShare) {
  const PlanRequest request = Reduced(4, 0, {10, 1});
  const auto found = FindSwitch(request, OnlyProducts(request.topology), 8);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->nodes, 2);
  EXPECT_THAT(found->changes, ElementsAre(2));
}

// Any request and links.
TEST(StrategySwitch, SaysWhatBothPlansArePredictedToTake) {
  HoldsInCases(kCases, [] {
    DrawLimits limits;
    limits.most_nodes = 3;
    limits.most_ranks_per_node = 3;
    limits.most_matrices = 6;
    limits.layouts = {Layout::kReplicated, Layout::kSharded};
    PlanRequest request = DrawRequest(limits);
    request.topology = DrawLinks(request.topology.grid);
    request.limits.buffer_bytes = 0;
    request.ownership = {};
    for (PlanMatrix& matrix : request.matrices) matrix.pass_through = false;
    request.strict = false;
    const CostModel model(request.topology, PricedRates());
    const int most = *rc::gen::inRange(1, 12);
    const auto found = FindSwitch(request, model, most);
    RC_ASSERT(found.ok());
    RC_ASSERT(found->points.front().nodes == 1);
    RC_ASSERT(found->points.back().nodes == most);
    RC_ASSERT(found->points.front().Shorter() == Strategy::kOwner);
    std::vector<int> changes;
    for (std::size_t i = 0; i < found->points.size(); ++i) {
      const SwitchPoint& point = found->points[i];
      for (const Strategy strategy : {Strategy::kOwner, Strategy::kNodeLocal}) {
        PlanRequest there = request;
        there.strategy = strategy;
        there.topology.grid.nodes = point.nodes;
        const CostModel costs(there.topology, PricedRates());
        there.forms = ChooseForms(costs);
        if (point.nodes != request.topology.grid.nodes) {
          for (PlanMatrix& matrix : there.matrices) matrix.shard_rows.clear();
        }
        const double seconds = EvaluateCycle(*BuildPlan(there), costs)->step_seconds;
        RC_ASSERT(seconds ==
                  (strategy == Strategy::kOwner ? point.owner_seconds : point.node_local_seconds));
      }
      if (i == 0 || point.Shorter() == found->points[i - 1].Shorter()) continue;
      // Changes are between neighbours.
      RC_ASSERT(found->points[i - 1].nodes + 1 == point.nodes);
      changes.push_back(point.nodes);
    }
    RC_ASSERT(found->changes == changes);
    RC_ASSERT(found->nodes == (changes.size() % 2 == 1 ? changes.back() : 0));
  });
}

TEST(StrategySwitch, OnlyForGoodQuestions) {
  PlanRequest request = Reduced(2, 1e9, {});
  const CostModel model = OnlyProducts(request.topology);
  EXPECT_EQ(FindSwitch(request, model, 0).status(),
            absl::InvalidArgumentError(
                "the switch is looked for on 1 to 32768 nodes of 2 ranks, not up to 0."));
  TrainerModel trainer;
  trainer.forward_seconds = {1};
  EXPECT_THAT(std::string(FindSwitch(request, model, 4, trainer).status().message()),
              HasSubstr("forward seconds are 1, the matrices 2"));
  // Too little memory for either on one node, and for node_local anywhere.
  request.ownership.state_bytes_cap = 4'000'000;
  request.topology.grid = {1, 1};
  const auto capped = FindSwitch(request, OnlyProducts(request.topology), 4);
  ASSERT_TRUE(capped.ok()) << capped.status();
  EXPECT_GT(capped->points[0].owner_seconds, 1e300);
  EXPECT_LT(capped->points[1].owner_seconds, 1);
  EXPECT_THAT(capped->changes, IsEmpty());
  request.matrices[0].rows = -1;
  EXPECT_EQ(FindSwitch(request, model, 4).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft::testing
