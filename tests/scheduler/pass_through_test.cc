// Matrices that take the vanilla path under strategy owner, and when that pays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"
#include "weft/cost_model.h"
#include "weft/topology_preset.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// Everything that runs, as data.
auto Fields(const Op& op) {
  return std::tuple(op.kind, op.lane, op.stage, op.trigger, op.source, op.target, op.matrix, op.set,
                    op.root, op.bytes, op.flops, op.after, op.after_previous);
}

// With all matrices passed through, strategy owner is strategy replicated or gather.
RC_GTEST_PROP(PassThrough, OfEveryMatrixIsTheVanillaStrategy, ()) {
  PlanRequest vanilla = DrawRequest({});
  vanilla.strategy = *rc::gen::element(Strategy::kReplicated, Strategy::kGather);
  vanilla.ownership = {};
  for (PlanMatrix& matrix : vanilla.matrices) {
    matrix.pass_through = false;
    const bool in_nodes =
        vanilla.strategy == Strategy::kGather && matrix.layout == Layout::kNodeSharded;
    if (in_nodes) continue;
    matrix.layout =
        vanilla.strategy == Strategy::kReplicated ? Layout::kReplicated : Layout::kSharded;
    if (matrix.gradient == GradientKind::kReplica) matrix.gradient = GradientKind::kLocal;
    matrix.shard_rows.clear();
  }
  PlanRequest passing = vanilla;
  passing.strategy = Strategy::kOwner;
  for (PlanMatrix& matrix : passing.matrices) matrix.pass_through = GetsOwner(passing, matrix);
  const absl::StatusOr<Plan> expected = BuildPlan(vanilla), plan = BuildPlan(passing);
  RC_ASSERT(expected.status() == absl::OkStatus());
  RC_ASSERT(plan.status() == absl::OkStatus());
  RC_ASSERT(plan->ops.size() == expected->ops.size());
  for (std::size_t i = 0; i < plan->ops.size(); ++i) {
    RC_ASSERT(Fields(plan->ops[i]) == Fields(expected->ops[i]));
    RC_ASSERT(plan->groups[plan->ops[i].group].parts ==
              expected->groups[expected->ops[i].group].parts);
  }
  RC_ASSERT(plan->lanes == expected->lanes);
  RC_ASSERT(plan->limits.buffer_bytes == expected->limits.buffer_bytes);
}

TEST(PassThrough, PathsSayIt) {
  std::vector<PlanMatrix> matrices = {Matrix("a", 8, 8), Matrix("b", 8, 8, Layout::kSharded),
                                      Matrix("c", 8, 8)};
  matrices[0].pass_through = matrices[1].pass_through = true;
  const auto plan = BuildPlan(Request(Strategy::kOwner, 1, 2, matrices));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->matrices[0].path, "pass-through: all-reduce, NS on every rank");
  EXPECT_EQ(plan->matrices[1].path,
            "pass-through: reduce-scatter, all-gather, NS on every rank, own rows kept");
  EXPECT_EQ(plan->matrices[0].owner, -1);
  EXPECT_EQ(plan->matrices[1].owner, -1);
  EXPECT_GE(plan->matrices[2].owner, 0);
  EXPECT_THAT(PlanToJson(*plan), HasSubstr("\"pass_through\": true"));
}

TEST(PassThrough, WhatHasNoChoiceIsRefused) {
  const auto refusal = [](Strategy strategy, PlanMatrix matrix) {
    matrix.pass_through = true;
    const absl::Status status = BuildPlan(Request(strategy, 1, 2, {std::move(matrix)})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal(Strategy::kOwner, Matrix("m", 8, 8, Layout::kOwned)),
            "matrix 'm' cannot pass through: it is owned, so that no other rank has its weight.");
  EXPECT_EQ(refusal(Strategy::kOwner, Matrix("m", 8, 8, Layout::kSharded, GradientKind::kLocal,
                                             RuleKind::kElementwise)),
            "matrix 'm' cannot pass through: its rule is element-wise and has no owner.");
  EXPECT_EQ(refusal(Strategy::kReplicated, Matrix("m", 8, 8)),
            "matrix 'm' cannot pass through: only strategy owner has another path for it.");
}

TEST(PassThrough, TheValidatorKnowsWhoHasAnOwner) {
  std::vector<PlanMatrix> matrices = {Matrix("a", 8, 8), Matrix("b", 8, 8)};
  matrices[0].pass_through = true;
  const Plan good = *BuildPlan(Request(Strategy::kOwner, 1, 2, matrices));
  const std::vector<std::function<void(Plan&)>> breakages = {
      [](Plan& p) { p.matrices[0].owner = 0; }, [](Plan& p) { p.matrices[0].pass_through = false; },
      [](Plan& p) { p.matrices[0].layout = Layout::kOwned; },
      [](Plan& p) { p.strategy = Strategy::kReplicated; }};
  for (const auto& breakage : breakages) {
    Plan plan = good;
    breakage(plan);
    EXPECT_THAT(std::string(ValidatePlan(plan).message()), HasSubstr("matrix 'a'"));
  }
}

OwnedWork Work(double flops, int launches = 0, bool batches = true) {
  ComputeWork work;
  work.shape = {ComputeKind::kNewtonSchulz, 8, 8, DType::kF32, "plain 5"};
  work.flops = flops;
  work.launches = launches;
  return {work, batches};
}

// Links of 1 GB/s inside nodes of two and 2 GB/s between two of them, 10 us and 30 us of latency.
class Compared : public ::testing::Test {
 protected:
  static constexpr double kBytes = 1e6;  // 500 x 500 in fp32
  static constexpr double kNs = 1e-3;

  PassThroughCosts Compare(Layout layout, GradientKind kind,
                           RuleKind rule = RuleKind::kMuon) const {
    return ComparePassThrough(model_, Matrix("m", 500, 500, layout, kind, rule), Work(1e6),
                              {.forms = forms_});
  }
  static void Expect(const PassThroughCosts& costs, double owner, double pass_through) {
    EXPECT_NEAR(costs.owner.collectives, owner, 1e-12);
    EXPECT_NEAR(costs.pass_through.collectives, pass_through, 1e-12);
    EXPECT_DOUBLE_EQ(costs.owner.compute, kNs / 4);
    EXPECT_DOUBLE_EQ(costs.pass_through.compute, kNs);
  }

  FormChoices forms_;
  const CostModel model_ = CostModel(Topology{{2, 2}, {10, 1}, {30, 2}, 2}, {1e9, 0, 0});
};

TEST_F(Compared, CollectivesAreThoseOfThePaths) {
  // One rooted collective on both levels; of halves of it, and of halves of a node's half.
  const double rooted = (10e-6 + 1e-3) + (30e-6 + 0.5e-3);
  const double scattered = (10e-6 + 0.25e-3) + (30e-6 + 0.25e-3);
  // A ring of four over the slowest link.
  const double ring = std::max(3 * 30e-6 + 0.75 * 0.5e-3, 3 * 10e-6 + 0.75 * 1e-3);
  Expect(Compare(Layout::kReplicated, GradientKind::kLocal), 2 * rooted, 2 * ring);
  Expect(Compare(Layout::kReplicated, GradientKind::kReduced), rooted, 0);
  Expect(Compare(Layout::kSharded, GradientKind::kLocal), rooted + scattered, 2 * ring);
  Expect(Compare(Layout::kSharded, GradientKind::kReduced), 2 * scattered, ring);
  // The weight comes, too.
  Expect(Compare(Layout::kSharded, GradientKind::kReduced, RuleKind::kCustom), 3 * scattered,
         2 * ring);
}

// All groups here are of two: of a pair, one goes while the other does.
TEST_F(Compared, WherePlansHavePairsAnOwnersCollectiveIsHalfOfOne) {
  const auto owner = [&] {
    return Compare(Layout::kReplicated, GradientKind::kReduced).owner.collectives;
  };
  const double intra = 10e-6 + 1e-3, inter = 30e-6 + 0.5e-3;
  forms_.pair_from = {-1, -1, 1 << 20};
  EXPECT_NEAR(owner(), intra + inter, 1e-12) << "the payload is less than that";
  forms_.pair_from = {-1, -1, 1000 * 1000};
  EXPECT_NEAR(owner(), intra + inter / 2, 1e-12);
  forms_ = ChooseForms(model_);
  EXPECT_NEAR(owner(), (intra + inter) / 2, 1e-12);
}

TEST_F(Compared, EachReductionOfALocalGradientCounts) {
  const auto collectives = [&](Layout layout, GradientKind kind, int reductions) {
    const PassThroughCosts costs = ComparePassThrough(model_, Matrix("m", 500, 500, layout, kind),
                                                      Work(1e6), {.reductions = reductions});
    return std::pair(costs.owner.collectives, costs.pass_through.collectives);
  };
  for (Layout layout : {Layout::kReplicated, Layout::kSharded}) {
    const auto [owner, passed] = collectives(layout, GradientKind::kLocal, 1);
    const auto [owner_rest, passed_rest] = collectives(layout, GradientKind::kLocal, 0);
    const auto [owner_three, passed_three] = collectives(layout, GradientKind::kLocal, 3);
    EXPECT_NEAR(owner_three, owner + 2 * (owner - owner_rest), 1e-12);
    EXPECT_NEAR(passed_three, passed + 2 * (passed - passed_rest), 1e-12);
    EXPECT_GT(owner_three, owner);
    EXPECT_EQ(collectives(layout, GradientKind::kReduced, 3),
              collectives(layout, GradientKind::kReduced, 1));
  }
}

TEST_F(Compared, ABucketSharesLatencyAndABatchLaunches) {
  const PlanMatrix matrix = Matrix("m", 500, 500, Layout::kReplicated, GradientKind::kReduced);
  const PassThroughCosts four = ComparePassThrough(model_, matrix, Work(1e6), {4 * kBytes, 1});
  EXPECT_NEAR(four.owner.collectives, 10e-6 / 4 + 1e-3 + 30e-6 / 4 + 0.5e-3, 1e-12);
  const CostModel launching(model_.topology(), {1e9, 0, 1e-3});
  const auto compute = [&](const OwnedWork& work, int alike) {
    return ComparePassThrough(launching, matrix, work, {0, alike}).pass_through.compute;
  };
  EXPECT_NEAR(compute(Work(1e6, 2), 1), 2e-3 + 1e-3, 1e-12);
  EXPECT_NEAR(compute(Work(1e6, 2), 4), 2e-3 / 4 + 1e-3, 1e-12);
  EXPECT_NEAR(compute(Work(1e6, 2), 100), 2e-3 / kLargestBatch + 1e-3, 1e-12);
  EXPECT_NEAR(compute(Work(1e6, 2, /*batches=*/false), 4), 2e-3 + 1e-3, 1e-12);
}

RC_GTEST_PROP(PassThrough, PaysWhereItIsNotDearer, ()) {
  Topology topology;
  topology.grid = DrawGrid(16);
  const bool free = *rc::gen::arbitrary<bool>();
  if (!free) {
    topology.intra = {*rc::gen::element(0.0, 1.0, 50.0), *rc::gen::element(0.0, 1.0, 100.0)};
    topology.inter = {*rc::gen::element(0.0, 1.0, 50.0), *rc::gen::element(0.0, 1.0, 100.0)};
  }
  const CostModel model(topology, {1e12, 0, 1e-6});
  const auto layout =
      *rc::gen::element(Layout::kReplicated, Layout::kSharded, Layout::kNodeSharded);
  const auto kind = DrawGradient(layout);
  const PlanMatrix matrix = Matrix("m", DrawExtent(512), DrawExtent(512), layout, kind);
  const PassThroughCosts costs =
      ComparePassThrough(model, matrix, Work(matrix.flops, *Evenly(0, 9)));
  if (costs.owner.collectives == 0) RC_ASSERT(!costs.Pays());
  // Links that cost nothing, and worlds of one, leave nothing to be saved.
  if (free || topology.grid.size() == 1) RC_ASSERT(!costs.Pays());
  if (costs.Pays()) RC_ASSERT(costs.pass_through.Seconds() <= costs.owner.Seconds());
  RC_CLASSIFY(costs.Pays(), "pays");
}

// Where DDP has reduced the gradient, nothing but the owner's broadcast stands against NS.
TEST(PassThrough, TheSizeDecidesOnAPreset) {
  const CostModel model(*Preset("pcie-48gb-1nic", 1));
  const auto pays = [&](std::int64_t side) {
    PlanMatrix matrix = Matrix("m", side, side, Layout::kReplicated, GradientKind::kReduced);
    const double cube = static_cast<double>(side) * static_cast<double>(side * side);
    return ComparePassThrough(model, matrix, Work(20 * cube)).Pays();
  };
  for (const std::int64_t side : {8, 64, 256, 1024}) EXPECT_TRUE(pays(side)) << side;
  for (const std::int64_t side : {8192, 16384}) EXPECT_FALSE(pays(side)) << side;
}

}  // namespace
}  // namespace weft::testing
