// Layout node_sharded: rows over the ranks of each node, copies across nodes.
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

// 6 x 2 in bf16: local rank 0 has 4 rows, 16 bytes, local rank 1 has 2; the whole has 24, in fp32
// 48.
PlanMatrix Small(GradientKind gradient, RuleKind rule = RuleKind::kMuon) {
  PlanMatrix matrix = Matrix("a", 6, 2, Layout::kNodeSharded, gradient, rule);
  matrix.dtype = DType::kBF16;
  matrix.shard_rows = {4, 2};
  return matrix;
}

// Of two nodes of two ranks; owners are world rank 3, under node_local local rank 1.
Plan Planned(Strategy strategy, const PlanMatrix& matrix) {
  PlanRequest request = Request(strategy, 2, 2, {matrix});
  if (matrix.rule != RuleKind::kElementwise && strategy != Strategy::kGather) {
    request.ownership.owners = {strategy == Strategy::kOwner ? 3 : 1};
  }
  return Build(request);
}

// "kind source>target group root bytes" of its collectives, "kind source>target group" of the rest.
Lines OpsOf(const Plan& plan) {
  Lines lines;
  for (const Op& op : plan.ops) {
    if (op.matrix < 0) continue;
    std::string line = std::string(Name(op.kind)) + " " + std::string(Name(op.source)) + ">" +
                       std::string(Name(op.target)) + " " + plan.groups[op.group].name;
    if (op.root >= 0) line += " root " + std::to_string(op.root);
    if (IsCollective(op.kind)) line += " " + std::to_string(op.bytes);
    lines.push_back(line);
  }
  return lines;
}

TEST(NodeSharded, GatherGathersInNodesAndSumsAmongReplicas) {
  const Lines rest = {"momentum reduced_gradient>update world",
                      "all_gather update>whole_update intra 48",
                      "orthogonalize whole_update>direction world", "apply direction>weight world"};
  const auto with_rest = [&](Lines lines) {
    lines.insert(lines.end(), rest.begin(), rest.end());
    return lines;
  };
  const Plan local = Planned(Strategy::kGather, Small(GradientKind::kLocal));
  EXPECT_EQ(OpsOf(local), with_rest({"reduce_scatter gradient>reduced_gradient intra 24",
                                     "all_reduce reduced_gradient>reduced_gradient replicas 16"}));
  EXPECT_EQ(
      local.matrices[0].path,
      "gather: reduce-scatter, all-reduce among replicas, all-gather in the node, NS on every "
      "rank, own rows kept");
  EXPECT_EQ(OpsOf(Planned(Strategy::kGather, Small(GradientKind::kReplica))),
            with_rest({"all_reduce gradient>reduced_gradient replicas 16"}));
  EXPECT_EQ(OpsOf(Planned(Strategy::kGather, Small(GradientKind::kReduced))),
            (Lines{"momentum gradient>update world", rest[1], rest[2], rest[3]}));
}

TEST(NodeSharded, TheOwnersNodeGathersAndScattersAndItsRanksSendToTheirReplicas) {
  const Lines rest = {"momentum reduced_gradient>update rank 3",
                      "orthogonalize update>direction rank 3",
                      "scatter direction>shard_direction node 1 root 1 48",
                      "broadcast shard_direction>shard_direction replicas root 1 32",
                      "apply shard_direction>weight world"};
  const auto with_rest = [&](Lines lines) {
    lines.insert(lines.end(), rest.begin(), rest.end());
    return lines;
  };
  EXPECT_EQ(OpsOf(Planned(Strategy::kOwner, Small(GradientKind::kLocal))),
            with_rest({"reduce gradient>node_gradient intra root 1 24",
                       "reduce node_gradient>reduced_gradient inter 1 root 1 24"}));
  const Plan replica = Planned(Strategy::kOwner, Small(GradientKind::kReplica));
  EXPECT_EQ(OpsOf(replica), with_rest({"reduce gradient>node_gradient replicas root 1 16",
                                       "gather node_gradient>reduced_gradient node 1 root 1 24"}));
  EXPECT_EQ(
      replica.matrices[0].path,
      "owner 3: reduce among replicas, gather in its node, NS, scatter in its node, broadcast "
      "to replicas");
  const Plan reduced = Planned(Strategy::kOwner, Small(GradientKind::kReduced));
  EXPECT_EQ(OpsOf(reduced), with_rest({"gather gradient>reduced_gradient node 1 root 1 24"}));
  // Nobody reads what another node's ranks have.
  for (const int rank : {0, 1}) EXPECT_EQ(SlotRows(reduced, 0, Slot::kGradient, rank), 0);
  EXPECT_EQ(SlotRows(reduced, 0, Slot::kGradient, 2), 4);
  EXPECT_EQ(SlotRows(reduced, 0, Slot::kGradient, 3), 2);
}

TEST(NodeSharded, UnderNodeLocalNodesMeetForTheGradientAlone) {
  const Lines rest = {
      "momentum reduced_gradient>update inter 1", "orthogonalize update>direction inter 1",
      "scatter direction>shard_direction intra root 1 48", "apply shard_direction>weight world"};
  const auto with_rest = [&](Lines lines) {
    lines.insert(lines.end(), rest.begin(), rest.end());
    return lines;
  };
  EXPECT_EQ(OpsOf(Planned(Strategy::kNodeLocal, Small(GradientKind::kLocal))),
            with_rest({"reduce gradient>node_gradient intra root 1 24",
                       "all_reduce node_gradient>reduced_gradient inter 1 24"}));
  EXPECT_EQ(OpsOf(Planned(Strategy::kNodeLocal, Small(GradientKind::kReplica))),
            with_rest({"all_reduce gradient>node_gradient replicas 16",
                       "gather node_gradient>reduced_gradient intra root 1 24"}));
  EXPECT_EQ(OpsOf(Planned(Strategy::kNodeLocal, Small(GradientKind::kReduced))),
            with_rest({"gather gradient>reduced_gradient intra root 1 24"}));
}

TEST(NodeSharded, ACallersRuleGetsWholeWeightsFromItsNode) {
  const auto ops = [](Strategy strategy) {
    return OpsOf(Planned(strategy, Small(GradientKind::kReduced, RuleKind::kCustom)));
  };
  EXPECT_EQ(ops(Strategy::kGather), (Lines{"all_gather gradient>whole_gradient intra 24",
                                           "all_gather weight>whole_weight intra 24",
                                           "custom whole_gradient>whole_weight world",
                                           "copy_rows whole_weight>weight world"}));
  EXPECT_EQ(ops(Strategy::kOwner), (Lines{"gather gradient>reduced_gradient node 1 root 1 24",
                                          "gather weight>whole_weight node 1 root 1 24",
                                          "custom reduced_gradient>whole_weight rank 3",
                                          "scatter whole_weight>weight node 1 root 1 24",
                                          "broadcast weight>weight replicas root 1 16"}));
  EXPECT_EQ(ops(Strategy::kNodeLocal), (Lines{"gather gradient>reduced_gradient intra root 1 24",
                                              "gather weight>whole_weight intra root 1 24",
                                              "custom reduced_gradient>whole_weight inter 1",
                                              "scatter whole_weight>weight intra root 1 24"}));
}

TEST(NodeSharded, ElementwiseRulesRunOnOwnRowsUnderEveryStrategy) {
  for (const Strategy strategy : {Strategy::kReplicated, Strategy::kGather, Strategy::kOwner,
                                  Strategy::kNodeLocal, Strategy::kLayerwise}) {
    const auto ops = [&](GradientKind gradient) {
      return OpsOf(Build(Request(strategy, 2, 2, {Small(gradient, RuleKind::kElementwise)})));
    };
    EXPECT_EQ(ops(GradientKind::kReplica),
              (Lines{"all_reduce gradient>reduced_gradient replicas 16",
                     "elementwise reduced_gradient>weight world"}));
    EXPECT_EQ(ops(GradientKind::kReduced), (Lines{"elementwise gradient>weight world"}));
    EXPECT_EQ(ops(GradientKind::kLocal).size(), 3u);
  }
}

TEST(NodeSharded, OfAPeriodicMatrixNormsAreSummedInTheNode) {
  PlanMatrix matrix = Small(GradientKind::kReduced);
  matrix.period = 3;
  matrix.norm_vectors = 1;
  const auto has = [&](Strategy strategy, const std::string& line) {
    const Lines lines = OpsOf(Planned(strategy, matrix));
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  const std::string sums = "all_reduce norm_squares>norm_squares intra 8";
  EXPECT_TRUE(has(Strategy::kGather, sums));
  EXPECT_TRUE(has(Strategy::kOwner, sums));
  EXPECT_TRUE(has(Strategy::kOwner, "gather update>whole_update node 1 root 1 48"));
  EXPECT_TRUE(has(Strategy::kNodeLocal, "row_norm update>direction inter 1"));
}

TEST(NodeSharded, PayloadsAreThoseOfTheRowsThatTravel) {
  const Plan plan = Planned(Strategy::kOwner, Small(GradientKind::kReplica));
  for (const Op& op : plan.ops) {
    if (plan.groups[op.group].name != "replicas") continue;
    const std::int64_t row = op.kind == OpKind::kReduce ? 4 : 8;
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(PayloadBytes(plan, op, rank), row * (rank % 2 == 0 ? 4 : 2)) << rank;
    }
  }
}

// The owner's gradient, its node's sum of 2 rows, the whole one, update, direction, own direction;
// passed through: own rows of gradient, sum and update, whole update, direction.
TEST(NodeSharded, PeakBytesAreThoseOfTheDearestRank) {
  const Plan plan = Planned(Strategy::kOwner, Small(GradientKind::kReplica));
  EXPECT_EQ(plan.matrices[0].peak_bytes, 8 + 8 + 24 + 48 + 48 + 16);
  EXPECT_EQ(plan.matrices[0].alternative_peak_bytes, 16 + 16 + 32 + 48 + 48);
}

PlanRequest DrawNodeSharded(const ProcessGrid& grid) {
  DrawLimits limits;
  limits.most_matrices = 20;
  limits.layouts = {Layout::kNodeSharded};
  limits.strategies = {Strategy::kGather, Strategy::kOwner, Strategy::kNodeLocal};
  return DrawRequest(limits, grid);
}

RC_GTEST_PROP(NodeSharded, OnOneNodeIsSharded, ()) {
  const PlanRequest request = DrawNodeSharded({1, *Evenly(1, 6)});
  PlanRequest sharded = request;
  for (PlanMatrix& matrix : sharded.matrices) {
    matrix.layout = Layout::kSharded;
    if (matrix.gradient == GradientKind::kReplica) matrix.gradient = GradientKind::kReduced;
  }
  RC_ASSERT(Fingerprint(Build(request)) == Fingerprint(Build(sharded)));
}

RC_GTEST_PROP(NodeSharded, WithOneRankPerNodeIsReplicated, ()) {
  PlanRequest request = DrawNodeSharded({*Evenly(2, 6), 1});
  PlanRequest replicated = request;
  for (PlanMatrix& matrix : replicated.matrices) {
    matrix.layout = Layout::kReplicated;
    if (matrix.gradient == GradientKind::kReplica) matrix.gradient = GradientKind::kLocal;
    matrix.shard_rows.clear();
    matrix.norm_vectors = 0;
  }
  RC_ASSERT(Fingerprint(Build(request)) == Fingerprint(Build(replicated)));
  // And is served by what serves that alone.
  request.ownership = replicated.ownership = {};
  request.strategy = replicated.strategy =
      *rc::gen::element(Strategy::kReplicated, Strategy::kLayerwise);
  for (PlanMatrix& matrix : request.matrices) matrix.pass_through = false;
  for (PlanMatrix& matrix : replicated.matrices) matrix.pass_through = false;
  RC_ASSERT(Fingerprint(Build(request)) == Fingerprint(Build(replicated)));
}

// After the gradient's reduction nothing goes between nodes, but the owner's rows to their
// replicas.
RC_GTEST_PROP(NodeSharded, NodesMeetForGradientsAndForWhatOneOwnerPublishes, ()) {
  const Plan plan = Build(DrawNodeSharded({*Evenly(2, 5), *Evenly(2, 5)}));
  for (const Op& op : plan.ops) {
    if (!IsCollective(op.kind) || op.lane != Lane::kInter || op.matrix < 0) continue;
    const bool publishes = op.kind == OpKind::kBroadcast && plan.strategy == Strategy::kOwner;
    RC_ASSERT(publishes || op.stage == Stage::kReduced);
    if (op.kind == OpKind::kReduce || op.kind == OpKind::kAllReduce) continue;
    RC_ASSERT(publishes);
  }
}

TEST(NodeSharded, RefusalsAreOneSentence) {
  const auto refusal = [](const PlanRequest& request) {
    return std::string(BuildPlan(request).status().message());
  };
  for (const Strategy strategy : {Strategy::kReplicated, Strategy::kLayerwise}) {
    EXPECT_EQ(refusal(Request(strategy, 2, 2, {Small(GradientKind::kLocal)})),
              "matrix 'a' is node_sharded, which strategy " + std::string(Name(strategy)) +
                  " cannot serve on several nodes; use gather, owner or node_local.");
  }
  PlanMatrix four = Small(GradientKind::kLocal);
  four.shard_rows = {2, 2, 1, 1};
  EXPECT_EQ(refusal(Request(Strategy::kOwner, 2, 2, {four})),
            "matrix 'a' has shard rows for 4 of 2 ranks per node.");
  for (const Layout layout : {Layout::kReplicated, Layout::kSharded, Layout::kOwned}) {
    EXPECT_EQ(
        refusal(
            Request(Strategy::kOwner, 2, 2, {Matrix("a", 4, 2, layout, GradientKind::kReplica)})),
        "matrix 'a' has gradients of kind replica, which only a node_sharded matrix can have.");
  }
}

TEST(NodeSharded, TheValidatorRefusesRowsOfOtherRanks) {
  PlanMatrix even = Small(GradientKind::kReplica);
  even.shard_rows = {3, 3};  // so that numbers of rows tell nothing
  const auto refusal = [](const Plan& plan) { return std::string(ValidatePlan(plan).message()); };
  const auto with = [](Plan plan, const std::string& group, std::vector<std::vector<int>> parts) {
    for (Group& each : plan.groups) {
      if (each.name == group) each.parts = parts;
    }
    return plan;
  };
  const Plan gather = Planned(Strategy::kGather, even);
  EXPECT_THAT(refusal(with(gather, "replicas", {{0, 3}, {1, 2}})),
              HasSubstr("goes from 3 rows to 6"));
  EXPECT_THAT(refusal(with(gather, "intra", {{0, 2}, {1, 3}})),
              HasSubstr("is of blocks of rows that do not follow one another"));
  PlanMatrix periodic = Matrix("a", 6, 2, Layout::kNodeSharded, GradientKind::kReduced);
  periodic.period = 2;
  periodic.norm_vectors = 1;
  Plan norms = Planned(Strategy::kGather, periodic);
  for (Op& op : norms.ops) {
    // Of ranks that have the same rows.
    if (op.source == Slot::kNormSquares) op.group = static_cast<std::int32_t>(norms.groups.size());
  }
  norms.groups.push_back({"pairs", {{0, 2}, {1, 3}}});
  EXPECT_THAT(refusal(norms), HasSubstr("sums squares of some rows"));
}

TEST(NodeSharded, TheValidatorWantsReplicasWhereTheyAre) {
  const auto refusal = [](const Plan& plan) { return std::string(ValidatePlan(plan).message()); };
  Plan alone = Build(Request(Strategy::kGather, 1, 2, {Matrix("a", 4, 2, Layout::kSharded)}));
  alone.matrices[0].layout = Layout::kNodeSharded;
  EXPECT_THAT(refusal(alone), HasSubstr("'a' is as if it had replicas, and has none"));
  Plan sharded = Build(Request(Strategy::kGather, 2, 2, {Matrix("a", 4, 2, Layout::kSharded)}));
  sharded.matrices[0].gradient = GradientKind::kReplica;
  EXPECT_THAT(refusal(sharded), HasSubstr("'a' is as if it had replicas, and has none"));
  Plan layerwise = Planned(Strategy::kOwner, Small(GradientKind::kReduced));
  layerwise.strategy = Strategy::kLayerwise;
  EXPECT_THAT(refusal(layerwise), HasSubstr("'a' has replicas, which its strategy cannot serve"));
}

TEST(NodeSharded, PassingThroughIsComparedOnItsOwnWays) {
  const Topology topology{{2, 2}, {10, 1}, {30, 2}, 2};
  const CostModel model(topology, {1e9, 0, 0});
  OwnedWork work;
  work.work.shape = {ComputeKind::kNewtonSchulz, 500, 500, DType::kF32, "plain 5"};
  const auto intra = [&](OpKind kind, double bytes) {
    return model.Collective(kind, GroupClass::kIntra, 2, bytes).seconds;
  };
  const auto inter = [&](OpKind kind, double bytes) {
    return model.Collective(kind, GroupClass::kInter, 2, bytes).seconds;
  };
  constexpr double kBytes = 1e6, kHalf = 5e5;
  const double publish = intra(OpKind::kScatter, kBytes) + inter(OpKind::kBroadcast, kHalf);
  const double gather = intra(OpKind::kGather, kBytes), all = intra(OpKind::kAllGather, kBytes);
  const auto expect = [&](GradientKind gradient, double owner, double passed) {
    const PlanMatrix matrix = Matrix("m", 500, 500, Layout::kNodeSharded, gradient);
    const PassThroughCosts costs = ComparePassThrough(model, matrix, work);
    EXPECT_NEAR(costs.owner.collectives, owner + publish, 1e-12) << Name(gradient);
    EXPECT_NEAR(costs.pass_through.collectives, passed + all, 1e-12) << Name(gradient);
  };
  expect(GradientKind::kLocal, intra(OpKind::kReduce, kBytes) + inter(OpKind::kReduce, kBytes),
         intra(OpKind::kReduceScatter, kBytes) + inter(OpKind::kAllReduce, kHalf));
  expect(GradientKind::kReplica, inter(OpKind::kReduce, kHalf) + gather,
         inter(OpKind::kAllReduce, kHalf));
  expect(GradientKind::kReduced, gather, 0);
}

}  // namespace
}  // namespace weft::testing
