// Strategy node_local: owners inside each node, nodes that repeat the work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"
#include "weft/cost_model.h"
#include "weft/plan.h"
#include "weft/plan_cost.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using Lines = std::vector<std::string>;

Plan Build(const PlanRequest& request) {
  absl::StatusOr<Plan> plan = BuildPlan(request);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  return *std::move(plan);
}

// "kind source>target group bytes" of every op of one matrix.
Lines OpsOf(const Plan& plan, int matrix) {
  Lines lines;
  for (const Op& op : plan.ops) {
    if (op.matrix != matrix) continue;
    lines.push_back(std::string(Name(op.kind)) + " " + std::string(Name(op.source)) + ">" +
                    std::string(Name(op.target)) + " " + plan.groups[op.group].name + " " +
                    std::to_string(op.bytes));
  }
  return lines;
}

TEST(NodeLocal, OfReplicatedTheSumOfGradientsAloneGoesBetweenNodes) {
  PlanRequest request = Request(Strategy::kNodeLocal, 3, 2, {Matrix("a", 4, 2)});
  request.ownership.owners = {1};
  const Plan plan = Build(request);
  EXPECT_EQ(
      plan.matrices[0].path,
      "local rank 1 of each node: reduce, all-reduce across nodes, NS, broadcast in the node");
  EXPECT_EQ(OpsOf(plan, 0),
            (Lines{"reduce gradient>node_gradient intra 32",
                   "all_reduce node_gradient>reduced_gradient inter 1 32",
                   "momentum reduced_gradient>update inter 1 0",
                   "orthogonalize update>direction inter 1 0", "apply direction>weight inter 1 0",
                   "broadcast weight>weight intra 32"}));
}

TEST(NodeLocal, OfShardsEachNodeGetsItsRows) {
  PlanMatrix matrix = Matrix("a", 6, 2, Layout::kSharded, GradientKind::kReduced);
  matrix.dtype = DType::kBF16;
  matrix.shard_rows = {1, 0, 3, 2};
  const Plan plan = Build(Request(Strategy::kNodeLocal, 2, 2, {matrix}));
  EXPECT_EQ(OpsOf(plan, 0), (Lines{"gather gradient>node_gradient intra 20",
                                   "all_gather node_gradient>reduced_gradient inter 0 24",
                                   "momentum reduced_gradient>update inter 0 0",
                                   "orthogonalize update>direction inter 0 0",
                                   "scatter direction>shard_direction intra 40",
                                   "apply shard_direction>weight world 0"}));
  EXPECT_EQ(SlotRows(plan, 0, Slot::kNodeGradient, 0), 1);
  EXPECT_EQ(SlotRows(plan, 0, Slot::kNodeGradient, 2), 5);
  for (const int rank : {0, 2}) EXPECT_EQ(SlotRows(plan, 0, Slot::kDirection, rank), 6);
  for (const int rank : {1, 3}) EXPECT_EQ(SlotRows(plan, 0, Slot::kDirection, rank), 0);
}

TEST(NodeLocal, ACallersRuleGetsWholeWeightsOnEachNode) {
  const Plan plan = Build(
      Request(Strategy::kNodeLocal, 2, 2,
              {Matrix("a", 8, 2, Layout::kSharded, GradientKind::kLocal, RuleKind::kCustom)}));
  EXPECT_EQ(OpsOf(plan, 0), (Lines{"reduce gradient>node_gradient intra 64",
                                   "all_reduce node_gradient>reduced_gradient inter 0 64",
                                   "gather weight>node_weight intra 32",
                                   "all_gather node_weight>whole_weight inter 0 64",
                                   "custom reduced_gradient>whole_weight inter 0 0",
                                   "scatter whole_weight>weight intra 32"}));
}

TEST(NodeLocal, SmallMatricesTravelTogether) {
  PlanRequest request = Request(Strategy::kNodeLocal, 2, 2, {Matrix("a", 4, 2), Matrix("b", 2, 2)});
  for (PlanMatrix& matrix : request.matrices) matrix.flops = 0;
  request.limits.bucket_bytes = 1000;
  EXPECT_EQ(OpsOf(Build(request), 0),
            (Lines{"reduce gradient>node_gradient intra 48",
                   "all_reduce node_gradient>reduced_gradient inter 0 48",
                   "momentum reduced_gradient>update inter 0 0",
                   "orthogonalize update>direction inter 0 0", "apply direction>weight inter 0 0",
                   "copy_rows weight>packed_weight inter 0 0",
                   "broadcast packed_weight>packed_weight intra 48",
                   "copy_rows packed_weight>weight all but inter 0 0"}));
}

TEST(NodeLocal, OneNodeHasOwnersAndANodeOfOneRankIsAnyRank) {
  const std::vector<PlanMatrix> matrices = {Matrix("a", 4, 2), Matrix("b", 4, 4),
                                            Matrix("s", 6, 2, Layout::kSharded)};
  const auto same = [&](Strategy other, int nodes, int locals, int matrix) {
    const Plan mine = Build(Request(Strategy::kNodeLocal, nodes, locals, matrices));
    std::vector<PlanMatrix> theirs = matrices;
    if (other == Strategy::kReplicated) theirs.pop_back();
    const Plan plan = Build(Request(other, nodes, locals, theirs));
    EXPECT_EQ(OpsOf(mine, matrix), OpsOf(plan, matrix)) << matrix;
    EXPECT_EQ(mine.matrices[matrix].owner, plan.matrices[matrix].owner);
  };
  for (int m = 0; m < 3; ++m) same(Strategy::kOwner, 1, 4, m);
  for (int m = 0; m < 2; ++m) same(Strategy::kReplicated, 4, 1, m);
  same(Strategy::kGather, 4, 1, 2);
}

TEST(NodeLocal, OwnersAreOfTheFirstNode) {
  PlanRequest request = Request(Strategy::kNodeLocal, 2, 2, {Matrix("a", 4, 2)});
  request.ownership.owners = {2};
  const absl::Status refused = BuildPlan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'a' has the given owner 2; 0 to 1"));
  request = Request(Strategy::kNodeLocal, 2, 2, {Matrix("a", 4, 2, Layout::kOwned)});
  EXPECT_THAT(std::string(BuildPlan(request).status().message()),
              HasSubstr("'a' is owned, which strategy node_local cannot serve"));
}

TEST(NodeLocal, OwnersOfAllNodesTakeTheirTime) {
  PlanRequest request = Request(Strategy::kNodeLocal, 2, 2, {Matrix("a", 4, 2), Matrix("b", 4, 2)});
  request.ownership.owners = {0, 1};
  EXPECT_EQ(OwnerSeconds(Build(request), {.batch_costs = {{3}, {5}}, .matrix_table = {0, 1}}),
            (std::vector<double>{3, 5, 3, 5}));
}

// The runtime takes a node's rows from the whole: they follow one another.
TEST(NodeLocal, AScatterFromTheWholeOverRanksApartIsRefused) {
  PlanRequest request = Request(Strategy::kNodeLocal, 2, 3, {Matrix("a", 12, 2, Layout::kSharded)});
  request.ownership.owners = {1};
  Plan plan = Build(request);
  for (Group& group : plan.groups) {
    if (group.name == "intra") group.parts = {{0, 1, 2, 5}, {3, 4}};
  }
  const absl::Status refused = ValidatePlan(plan);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("goes from 12 rows to 8"));
}

// What a node's ranks do does not depend on the node, nor on how many there are.
RC_GTEST_PROP(NodeLocal, NodesDoTheSameAndOnlyGradientsGoBetweenThem, ()) {
  DrawLimits limits{4, 4, 20, 64};
  PlanRequest request = DrawRequest(limits, {*Evenly(2, 5), *Evenly(2, 5)});
  RC_PRE(request.strategy == Strategy::kNodeLocal);
  const ProcessGrid grid = request.topology.grid;
  absl::StatusOr<Plan> plan = BuildPlan(request);
  RC_ASSERT(plan.status() == absl::OkStatus());
  std::map<std::int32_t, std::vector<int>> updated_on;
  for (std::size_t i = 0; i < plan->ops.size(); ++i) {
    const Op& op = plan->ops[i];
    const bool updates = op.kind == OpKind::kMomentum || op.kind == OpKind::kCustom;
    for (const std::int32_t m : MatricesOf(*plan, op)) {
      const PlanMatrix& matrix = plan->matrices[m];
      if (updates) {
        for (const auto& part : plan->groups[op.group].parts) {
          updated_on[m].insert(updated_on[m].end(), part.begin(), part.end());
        }
      }
      if (matrix.owner < 0 || op.lane != Lane::kInter || !IsCollective(op.kind)) continue;
      const bool gathers =
          matrix.layout == Layout::kSharded &&
          (matrix.gradient == GradientKind::kReduced || matrix.rule == RuleKind::kCustom);
      RC_ASSERT(op.kind == OpKind::kAllReduce || (gathers && op.kind == OpKind::kAllGather));
    }
  }
  for (std::size_t m = 0; m < plan->matrices.size(); ++m) {
    const int owner = plan->matrices[m].owner;
    if (owner < 0) continue;
    RC_ASSERT(owner < grid.ranks_per_node);
    RC_ASSERT(updated_on[static_cast<std::int32_t>(m)] == grid.Inter(owner));
  }
  for (int rank = 0; rank < grid.size(); ++rank) {
    const RankCost cost = CostOfRank(*plan, rank);
    const RankCost first = CostOfRank(*plan, grid.local_of(rank));
    RC_ASSERT(cost.owned == first.owned);
    RC_ASSERT(cost.lane_bytes[static_cast<int>(Lane::kInter)] ==
              first.lane_bytes[static_cast<int>(Lane::kInter)]);
  }
}

}  // namespace
}  // namespace weft::testing
