// The ops of each path, and the order of a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/scheduler/requests.h"
#include "weft/plan.h"
#include "weft/plan_cost.h"

namespace weft::testing {
namespace {

Plan Build(const PlanRequest& request) {
  absl::StatusOr<Plan> plan = BuildPlan(request);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  return *std::move(plan);
}

// "kind group bytes stage" of every op of one matrix.
std::vector<std::string> OpsOf(const Plan& plan, int matrix) {
  std::vector<std::string> lines;
  for (const Op& op : plan.ops) {
    if (op.matrix != matrix) continue;
    lines.push_back(std::string(Name(op.kind)) + " " + std::string(Name(op.source)) + ">" +
                    std::string(Name(op.target)) + " " + plan.groups[op.group].name + " " +
                    std::to_string(op.bytes) + " " + std::string(Name(op.stage)));
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(PlanShape, OwnerOfReplicatedGoesByNodesAndInterGroup) {
  // The third of three equal matrices belongs to local rank 0 of node 1.
  const Plan plan = Build(
      Request(Strategy::kOwner, 2, 2, {Matrix("a", 4, 2), Matrix("b", 4, 2), Matrix("c", 4, 2)}));
  ASSERT_EQ(plan.matrices[2].owner, 2);
  EXPECT_EQ(plan.matrices[2].path, "owner 2: reduce, NS, broadcast");
  EXPECT_EQ(OpsOf(plan, 2), (Lines{"reduce gradient>node_gradient intra 32 reduced",
                                   "reduce node_gradient>reduced_gradient inter 0 32 reduced",
                                   "momentum reduced_gradient>update rank 2 0 orthogonalized",
                                   "orthogonalize update>direction rank 2 0 orthogonalized",
                                   "apply direction>weight rank 2 0 applied",
                                   "broadcast weight>weight inter 0 32 published",
                                   "broadcast weight>weight intra 32 delivered"}));
}

TEST(PlanShape, OwnerOfReducedShardsGathersAndScattersRows) {
  PlanMatrix matrix = Matrix("a", 6, 2, Layout::kSharded, GradientKind::kReduced);
  matrix.dtype = DType::kBF16;
  matrix.shard_rows = {1, 0, 3, 2};
  const Plan plan = Build(Request(Strategy::kOwner, 2, 2, {matrix}));
  EXPECT_EQ(plan.matrices[0].path, "owner 0: gather, NS, scatter");
  EXPECT_EQ(OpsOf(plan, 0), (Lines{"gather gradient>node_gradient intra 20 reduced",
                                   "gather node_gradient>reduced_gradient inter 0 24 reduced",
                                   "momentum reduced_gradient>update rank 0 0 orthogonalized",
                                   "orthogonalize update>direction rank 0 0 orthogonalized",
                                   "scatter direction>node_direction inter 0 48 published",
                                   "scatter node_direction>shard_direction intra 40 published",
                                   "apply shard_direction>weight world 0 delivered"}));
  // Each node carries its own rows.
  const Op& gather = plan.ops[0];
  EXPECT_EQ(PayloadBytes(plan, gather, 1), 4);
  EXPECT_EQ(PayloadBytes(plan, gather, 2), 20);
}

TEST(PlanShape, GatherRunsAllMomentaBeforeTheFirstNewtonSchulz) {
  const Plan plan =
      Build(Request(Strategy::kGather, 1, 2,
                    {Matrix("a", 4, 2, Layout::kSharded), Matrix("b", 4, 2, Layout::kSharded)}));
  EXPECT_EQ(OpsOf(plan, 0), (Lines{"reduce_scatter gradient>reduced_gradient world 32 reduced",
                                   "momentum reduced_gradient>update world 0 orthogonalized",
                                   "all_gather update>whole_update world 32 orthogonalized",
                                   "orthogonalize whole_update>direction world 0 orthogonalized",
                                   "apply direction>weight world 0 applied"}));
  std::vector<OpKind> kinds;
  for (std::int32_t index : plan.lanes[0][static_cast<int>(Lane::kCompute)]) {
    kinds.push_back(plan.ops[index].kind);
  }
  EXPECT_EQ(kinds,
            (std::vector<OpKind>{OpKind::kMomentum, OpKind::kMomentum, OpKind::kOrthogonalize,
                                 OpKind::kApply, OpKind::kOrthogonalize, OpKind::kApply}));
}

TEST(PlanShape, CustomRuleOnShardsMovesTheWeightToItsOwnerAndBack) {
  const Plan plan = Build(
      Request(Strategy::kOwner, 1, 2,
              {Matrix("a", 4, 2, Layout::kSharded, GradientKind::kReduced, RuleKind::kCustom)}));
  EXPECT_EQ(OpsOf(plan, 0), (Lines{"gather gradient>reduced_gradient world 32 reduced",
                                   "gather weight>whole_weight world 32 orthogonalized",
                                   "custom reduced_gradient>whole_weight rank 0 0 applied",
                                   "scatter whole_weight>weight world 32 delivered"}));
}

TEST(PlanShape, ReductionsGoBackwardsUpdatesForwards) {
  std::vector<PlanMatrix> matrices;
  for (int i = 0; i < 6; ++i) matrices.push_back(Matrix("m" + std::to_string(i), 4, 4));
  const Plan plan = Build(Request(Strategy::kReplicated, 1, 2, matrices));
  std::vector<int> reduced, updated;
  bool verdict = false;
  for (const Op& op : plan.ops) {
    verdict = verdict || op.kind == OpKind::kVerdict;
    if (op.kind == OpKind::kAllReduce) {
      EXPECT_FALSE(verdict);
      EXPECT_EQ(op.trigger, Trigger::kSubmitted);
      reduced.push_back(op.matrix);
    }
    if (op.kind == OpKind::kApply) {
      EXPECT_TRUE(verdict);
      EXPECT_EQ(op.trigger, Trigger::kStepClosed);
      updated.push_back(op.matrix);
    }
  }
  EXPECT_EQ(reduced, (std::vector<int>{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(updated, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST(PlanShape, PublishesFollowTheOwnersFinishTimes) {
  // Rank 0 owns the large matrix, which comes first in use order and is done last.
  const Plan plan = Build(Request(Strategy::kOwner, 1, 2,
                                  {Matrix("large", 64, 64), Matrix("s", 8, 8), Matrix("t", 8, 8)}));
  std::vector<std::string> published;
  for (const Op& op : plan.ops) {
    if (op.kind == OpKind::kBroadcast) published.push_back(plan.matrices[op.matrix].name);
  }
  EXPECT_EQ(published, (std::vector<std::string>{"s", "t", "large"}));
}

TEST(PlanShape, PiecesOfALargeMatrixTakeTurnsWithWhatIsPublishedBehindIt) {
  PlanRequest request = Request(Strategy::kOwner, 2, 2, {});
  for (const char* name : {"large", "s", "t", "u", "v"}) {
    request.matrices.push_back(Matrix(name, *name == 'l' ? 30 : 4, 4));
    request.matrices.back().flops = 1;
    request.ownership.owners.push_back(0);
  }
  request.limits.piece_bytes = 160;
  const Plan plan = Build(request);
  std::vector<std::string> published, reduced;
  std::int64_t bytes = 0;
  for (const Op& op : plan.ops) {
    if (op.lane != Lane::kInter || op.matrix < 0) continue;
    const std::string text = plan.matrices[op.matrix].name + " " + std::to_string(op.piece) + "/" +
                             std::to_string(op.pieces);
    (op.kind == OpKind::kBroadcast ? published : reduced).push_back(text);
    if (op.matrix == 0 && op.kind == OpKind::kBroadcast) bytes += op.bytes;
  }
  EXPECT_EQ(published,
            (Lines{"large 0/3", "large 1/3", "s 0/1", "large 2/3", "t 0/1", "u 0/1", "v 0/1"}));
  // Gradients come one by one: no piece waits for the next one's.
  EXPECT_EQ(reduced,
            (Lines{"v 0/1", "u 0/1", "t 0/1", "s 0/1", "large 0/3", "large 1/3", "large 2/3"}));
  EXPECT_EQ(bytes, 30 * 4 * 4);
}

TEST(PlanShape, ElementwiseRulesStayWhereTheWeightIs) {
  for (Strategy strategy : {Strategy::kReplicated, Strategy::kGather, Strategy::kOwner,
                            Strategy::kNodeLocal, Strategy::kLayerwise}) {
    const Plan plan = Build(Request(
        strategy, 2, 2,
        {Matrix("a", 4, 2, Layout::kReplicated, GradientKind::kLocal, RuleKind::kElementwise),
         Matrix("b", 4, 2, Layout::kSharded, GradientKind::kLocal, RuleKind::kElementwise),
         Matrix("c", 4, 2, Layout::kSharded, GradientKind::kReduced, RuleKind::kElementwise)}));
    EXPECT_EQ(OpsOf(plan, 0), (Lines{"all_reduce gradient>reduced_gradient world 32 reduced",
                                     "elementwise reduced_gradient>weight world 0 applied"}));
    EXPECT_EQ(OpsOf(plan, 1), (Lines{"reduce_scatter gradient>reduced_gradient world 32 reduced",
                                     "elementwise reduced_gradient>weight world 0 applied"}));
    EXPECT_EQ(OpsOf(plan, 2), (Lines{"elementwise gradient>weight world 0 applied"}));
    for (const PlanMatrix& matrix : plan.matrices) {
      EXPECT_EQ(matrix.path.rfind("element-wise: ", 0), 0u) << matrix.path;
      EXPECT_EQ(matrix.fallback, "");
    }
  }
}

TEST(PlanShape, StateIsShardedUnderGatherAndWholeElsewhere) {
  const Plan gather =
      Build(Request(Strategy::kGather, 1, 4, {Matrix("a", 8, 2, Layout::kSharded)}));
  const Plan replicated = Build(Request(Strategy::kReplicated, 1, 4, {Matrix("a", 8, 2)}));
  EXPECT_EQ(CostOfRank(gather, 1).state_bytes, 2 * 2 * 4);
  EXPECT_EQ(CostOfRank(replicated, 1).state_bytes, 8 * 2 * 4);
  EXPECT_EQ(CostOfRank(replicated, 1).lane_bytes[static_cast<int>(Lane::kIntra)],
            8 * 2 * 4 + 4 * VerdictFloats(1, 4));
}

}  // namespace
}  // namespace weft::testing
