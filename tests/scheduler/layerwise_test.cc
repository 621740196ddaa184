// Strategy layerwise: owners, and collectives of the world for many owners' matrices at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"
#include "weft/cost_model.h"
#include "weft/plan.h"
#include "weft/plan_cost.h"
#include "weft/plan_evaluator.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using Lines = std::vector<std::string>;

Plan Build(const PlanRequest& request) {
  absl::StatusOr<Plan> plan = BuildPlan(request);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  return *std::move(plan);
}

// "kind names source>target group bytes" of every op but the verdict.
Lines OpsOf(const Plan& plan) {
  Lines lines;
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::kVerdict) continue;
    std::string line = std::string(Name(op.kind)) + " ";
    for (const std::int32_t m : MatricesOf(plan, op)) line += plan.matrices[m].name;
    lines.push_back(line + " " + std::string(Name(op.source)) + ">" + std::string(Name(op.target)) +
                    " " + plan.groups[op.group].name + " " + std::to_string(op.bytes));
  }
  return lines;
}

// Three small matrices of two owners on four ranks, and one that is too large for an exchange.
PlanRequest Four(Layout layout, GradientKind gradient) {
  PlanRequest request =
      Request(Strategy::kLayerwise, 2, 2,
              {Matrix("a", 4, 2, layout, gradient), Matrix("b", 2, 2, layout, gradient),
               Matrix("c", 4, 8, layout, gradient), Matrix("d", 8, 1, layout, gradient)});
  request.limits.exchange_bytes = 80;
  request.ownership.owners = {3, 1, 0, 1};
  return request;
}

TEST(Layerwise, OneReduceScatterAndOneAllGatherForMatricesOfSeveralOwners) {
  const Plan plan = Build(Four(Layout::kReplicated, GradientKind::kLocal));
  EXPECT_EQ(plan.matrices[0].path, "layerwise, owner 3: reduce-scatter, NS, all-gather");
  EXPECT_EQ(plan.matrices[2].path, "layerwise, owner 0: reduce, NS, broadcast");
  ASSERT_EQ(plan.sets.size(), 1u);
  EXPECT_EQ(plan.sets[0], (std::vector<std::int32_t>{1, 3, 0}));  // by their owners
  EXPECT_EQ(
      OpsOf(plan),
      (Lines{"reduce c gradient>reduced_gradient world 128",
             "reduce_scatter bda gradient>reduced_gradient world 80",
             "momentum a reduced_gradient>update rank 3 0",
             "orthogonalize a update>direction rank 3 0", "apply a direction>weight rank 3 0",
             "momentum b reduced_gradient>update rank 1 0",
             "orthogonalize b update>direction rank 1 0", "apply b direction>weight rank 1 0",
             "momentum c reduced_gradient>update rank 0 0",
             "orthogonalize c update>direction rank 0 0", "apply c direction>weight rank 0 0",
             "momentum d reduced_gradient>update rank 1 0",
             "orthogonalize d update>direction rank 1 0", "apply d direction>weight rank 1 0",
             "all_gather bda weight>weight world 80", "broadcast c weight>weight world 128"}));
  // The parts lie side by side in the order of their owners.
  for (int rank = 0; rank < 4; ++rank) {
    const RankBuffers buffers = BuffersOfRank(plan, rank);
    const auto gradient = static_cast<std::size_t>(Slot::kGradient);
    EXPECT_EQ(plan.matrices[0].buffers[gradient], plan.matrices[3].buffers[gradient]);
    EXPECT_EQ(buffers.offsets[1][gradient], 0);
    EXPECT_EQ(buffers.offsets[3][gradient], 16);
    EXPECT_EQ(buffers.offsets[0][gradient], 48);
  }
  const auto reduced = static_cast<std::size_t>(Slot::kReducedGradient);
  const std::int32_t buffer = plan.matrices[0].buffers[reduced];
  const std::vector<std::int64_t> bytes = {0, 48, 0, 32};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(BuffersOfRank(plan, rank).bytes[buffer], bytes[rank]) << rank;
  }
}

TEST(Layerwise, ReducedGradientsOfReplicatedAreAtHand) {
  const Plan plan = Build(Four(Layout::kReplicated, GradientKind::kReduced));
  for (const Op& op : plan.ops) EXPECT_NE(op.trigger, Trigger::kSubmitted);
  EXPECT_EQ(plan.matrices[0].path, "layerwise, owner 3: NS, all-gather");
}

TEST(Layerwise, OfShardsRowsGoToTheOwnersAndDirectionsBack) {
  const Plan plan = Build(Four(Layout::kSharded, GradientKind::kReduced));
  EXPECT_EQ(plan.matrices[0].path, "layerwise, owner 3: gather, NS, scatter");
  Lines collectives;
  for (const std::string& line : OpsOf(plan)) {
    if (line.find("ther ") < 10 || line.find("tter ") < 10) collectives.push_back(line);
  }
  EXPECT_EQ(collectives, (Lines{"gather c gradient>reduced_gradient world 128",
                                "gather bda gradient>reduced_gradient world 80",
                                "scatter bda direction>shard_direction world 80",
                                "scatter c direction>shard_direction world 128"}));
  // Each rank's busiest way, and no more: of the 80 bytes, the owners' 48 and 32 but their own
  // rows.
  Topology topology = plan.topology;
  topology.intra = topology.inter = {0, 1e-4};
  const CostModel model(
      topology,
      AnalyticRates{.flops_per_second = 1e18, .bytes_per_second = 1e18, .launch_seconds = 0});
  double seconds = 0;
  for (const Op& op : plan.ops) {
    if (op.kind != OpKind::kGather && op.kind != OpKind::kScatter) continue;
    if (op.set < 0) seconds += 96.0 / 1e5;  // three quarters of 128
  }
  // Rows of b (1, 1, 0, 0), d (2 each) and a (1 each): rank 1 receives 8 + 24 bytes of b and d, and
  // rank 3 24 of a; between nodes 8 + 8 go to NIC 1 of node 0.
  seconds += 2 * 32.0 / 1e5;
  // The verdict is an all-reduce.
  seconds += 2 * 0.75 * 4 * static_cast<double>(VerdictFloats(4, 4)) / 1e5;
  const absl::StatusOr<StepPrediction> prediction = EvaluatePlan(plan, model);
  ASSERT_EQ(prediction.status(), absl::OkStatus());
  EXPECT_NEAR(prediction->step_seconds, seconds, 1e-9);
}

TEST(Layerwise, OfShardsLocalGradientsAreReduceScatteredWhole) {
  const Plan plan = Build(Four(Layout::kSharded, GradientKind::kLocal));
  const Lines ops = OpsOf(plan);
  EXPECT_EQ(
      std::count(ops.begin(), ops.end(), "reduce_scatter bda gradient>reduced_gradient world 80"),
      1);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "scatter bda direction>shard_direction world 80"),
            1);
}

TEST(Layerwise, ACallersRuleHasItsMatrixToItself) {
  PlanRequest request = Four(Layout::kSharded, GradientKind::kReduced);
  for (PlanMatrix& matrix : request.matrices) matrix.rule = RuleKind::kCustom;
  const Plan plan = Build(request);
  EXPECT_TRUE(plan.sets.empty());
  const Lines ops = OpsOf(plan);
  for (const char* line :
       {"gather a gradient>reduced_gradient world 32", "gather a weight>whole_weight world 32",
        "custom a reduced_gradient>whole_weight rank 3 0",
        "scatter a whole_weight>weight world 32"}) {
    EXPECT_EQ(std::count(ops.begin(), ops.end(), line), 1) << line;
  }
}

TEST(Layerwise, LayoutsAndLimitsThatItCannotServe) {
  EXPECT_THAT(std::string(BuildPlan(Request(Strategy::kLayerwise, 2, 2,
                                            {Matrix("a", 4, 2, Layout::kOwned)}))
                              .status()
                              .message()),
              HasSubstr("'a' is owned, which strategy layerwise cannot serve"));
  PlanRequest request = Four(Layout::kReplicated, GradientKind::kLocal);
  request.limits.exchange_bytes = -1;
  EXPECT_THAT(std::string(BuildPlan(request).status().message()),
              HasSubstr("exchange_bytes is -1; it must be 0 or more"));
}

// What an exchange may not be.
TEST(Layerwise, BrokenExchangesAreRefused) {
  const Plan good = Build(Four(Layout::kReplicated, GradientKind::kLocal));
  const auto refusal = [](const Plan& plan) { return std::string(ValidatePlan(plan).message()); };
  const auto op_of = [](Plan& plan, OpKind kind) -> Op& {
    return *std::find_if(plan.ops.begin(), plan.ops.end(),
                         [&](const Op& op) { return op.kind == kind; });
  };
  Plan plan = good;
  std::swap(plan.sets[0][0], plan.sets[0][1]);
  EXPECT_THAT(refusal(plan), HasSubstr("set 0 is not of two or more matrices in order"));
  plan = good;
  op_of(plan, OpKind::kReduceScatter).root = 1;
  EXPECT_THAT(refusal(plan), HasSubstr("has a root too many"));
  plan = good;
  op_of(plan, OpKind::kReduceScatter).set = -1;
  EXPECT_THAT(refusal(plan), HasSubstr("is of set -1, not of set 0"));
  plan = good;
  op_of(plan, OpKind::kReduceScatter).kind = OpKind::kAllReduce;
  EXPECT_THAT(refusal(plan), HasSubstr("is no collective of an exchange"));
  plan = good;
  op_of(plan, OpKind::kAllGather).target = Slot::kPackedWeight;
  EXPECT_THAT(refusal(plan), HasSubstr("must leave what it sends where it lies"));
  plan = good;
  op_of(plan, OpKind::kAllGather).bytes = 79;
  EXPECT_THAT(refusal(plan), HasSubstr("carries 79 bytes, not 80"));
  plan = good;
  plan.matrices[1].buffers[static_cast<int>(Slot::kGradient)] = plan.buffers++;
  EXPECT_THAT(refusal(plan), HasSubstr("does not lie beside those of its set"));
  plan = good;
  plan.matrices[1].owner = 2;
  EXPECT_NE(refusal(plan), "");
}

// Each matrix is reduced and published once, in exchanges of neighbours of one kind that keep to
// their limit; what could join one does.
RC_GTEST_PROP(Layerwise, ExchangesAreOfNeighboursAndAsLargeAsTheyMay, ()) {
  PlanRequest request = DrawRequest({});
  RC_PRE(request.strategy == Strategy::kLayerwise);
  RC_PRE(request.topology.grid.size() > 1);
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  RC_ASSERT(plan.status() == absl::OkStatus());
  const std::int64_t limit = request.limits.exchange_bytes;
  const auto bytes_of = [&](std::int32_t m) {
    const PlanMatrix& matrix = plan->matrices[m];
    return matrix.rows * matrix.cols * static_cast<std::int64_t>(SizeOf(matrix.dtype));
  };
  // By kind, exchanges and loners from the last on.
  using Kind = std::tuple<Layout, GradientKind, DType>;
  std::map<Kind, std::vector<std::pair<std::int32_t, std::int64_t>>> runs;
  for (auto m = static_cast<std::int32_t>(plan->matrices.size()) - 1; m >= 0; --m) {
    const PlanMatrix& matrix = plan->matrices[m];
    RC_ASSERT(matrix.bucket < 0 || matrix.rule == RuleKind::kElementwise);
    if (matrix.rule != RuleKind::kMuon || limit == 0 || bytes_of(m) > limit) {
      RC_ASSERT(matrix.exchange == -1);
      continue;
    }
    auto& list = runs[{matrix.layout, matrix.gradient, matrix.dtype}];
    const bool goes_on =
        !list.empty() && matrix.exchange >= 0 && list.back().first == matrix.exchange;
    if (goes_on) {
      list.back().second += bytes_of(m);
      RC_ASSERT(list.back().second <= limit);
    } else {
      if (!list.empty()) RC_ASSERT(list.back().second + bytes_of(m) > limit);
      list.emplace_back(matrix.exchange, bytes_of(m));
    }
  }
  for (const Op& op : plan->ops) {
    if (!IsCollective(op.kind) || op.matrix < 0 || plan->matrices[op.matrix].owner < 0) continue;
    RC_ASSERT(plan->groups[op.group].name == "world");
    RC_ASSERT((op.set >= 0) == (plan->matrices[op.matrix].exchange >= 0));
  }
}

}  // namespace
}  // namespace weft::testing
