// Small situations that have gone wrong in practice.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/scheduler/requests.h"
#include "tests/scheduler/simulation.h"
#include "tests/support/seed.h"
#include "weft/plan.h"
#include "weft/plan_cost.h"

namespace weft::testing {
namespace {

Plan Build(const PlanRequest& request) {
  absl::StatusOr<Plan> plan = BuildPlan(request);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  return *std::move(plan);
}

TEST(Cases, ShortAndEmptyShardsTakePartInEverything) {
  EXPECT_EQ(DefaultShardRows(18, 8), (std::vector<std::int64_t>{3, 3, 3, 3, 3, 3, 0, 0}));
  struct Case {
    std::int64_t rows;
    int ranks;
  };
  for (const Case& c : {Case{18, 8}, Case{17, 4}, Case{1, 2}, Case{3, 2}}) {
    for (Strategy strategy : {Strategy::kGather, Strategy::kOwner}) {
      for (GradientKind gradient : {GradientKind::kLocal, GradientKind::kReduced}) {
        const Plan plan = Build(
            Request(strategy, 1, c.ranks, {Matrix("w", c.rows, 32, Layout::kSharded, gradient)}));
        const std::size_t collectives = plan.lanes[0][static_cast<int>(Lane::kIntra)].size();
        EXPECT_GE(collectives, 2u);
        for (const auto& lanes : plan.lanes) {
          EXPECT_EQ(lanes[static_cast<int>(Lane::kIntra)].size(), collectives);
        }
        EXPECT_EQ(Simulate(plan, 2, Seed()), "");
      }
    }
  }
}

TEST(Cases, FewMatricesOnManyRanks) {
  for (Layout layout : {Layout::kReplicated, Layout::kSharded}) {
    // 8, 0 and 24 elements over two ranks.
    const Plan plan = Build(
        Request(Strategy::kOwner, 1, 2,
                {Matrix("a", 2, 4, layout), Matrix("b", 0, 4, layout), Matrix("c", 6, 4, layout)}));
    EXPECT_EQ(Simulate(plan, 2, Seed()), "");
    EXPECT_EQ(CostOfRank(plan, 0).owned + CostOfRank(plan, 1).owned, 3);
    // One matrix on four ranks: three own nothing and still take part.
    const Plan one = Build(Request(Strategy::kOwner, 2, 2, {Matrix("a", 4, 4, layout)}));
    EXPECT_EQ(Simulate(one, 2, Seed()), "");
    // Two owners on four ranks.
    const Plan two = Build(
        Request(Strategy::kOwner, 2, 2, {Matrix("a", 4, 4, layout), Matrix("b", 4, 4, layout)}));
    EXPECT_EQ(Simulate(two, 2, Seed()), "");
    for (const Plan* p : {&one, &two}) {
      for (const auto& lanes : p->lanes) {
        EXPECT_FALSE(lanes[static_cast<int>(Lane::kIntra)].empty());
        EXPECT_FALSE(lanes[static_cast<int>(Lane::kInter)].empty());
      }
    }
  }
}

TEST(Cases, GroupsOfOneGetNoCommunicator) {
  for (const ProcessGrid& grid : {ProcessGrid{1, 1}, ProcessGrid{1, 4}, ProcessGrid{4, 1}}) {
    const Plan plan = Build(Request(Strategy::kOwner, grid.nodes, grid.ranks_per_node,
                                    {Matrix("a", 4, 4), Matrix("b", 4, 4, Layout::kSharded)}));
    for (const Op& op : plan.ops) {
      if (op.kind >= OpKind::kVerdict) continue;
      EXPECT_EQ(plan.groups[op.group].name, "world");
      EXPECT_EQ(op.lane, grid.nodes == 1 ? Lane::kIntra : Lane::kInter);
    }
  }
}

TEST(Cases, Case15OneHugeMatrixAmongSmallOnes) {
  std::vector<PlanMatrix> matrices = {Matrix("huge", 50000, 64)};
  for (int i = 0; i < 12; ++i) matrices.push_back(Matrix("small" + std::to_string(i), 64, 64));
  const Plan plan = Build(Request(Strategy::kOwner, 1, 4, matrices));
  double most = 0;
  for (int rank = 0; rank < 4; ++rank) most = std::max(most, CostOfRank(plan, rank).flops);
  // The huge one alone is the best possible makespan.
  EXPECT_LE(most, 1.05 * plan.matrices[0].flops);
  EXPECT_EQ(CostOfRank(plan, plan.matrices[0].owner).owned, 1);
}

TEST(Cases, EachNewtonSchulzRunsOnceInTheWorld) {
  for (Layout layout : {Layout::kReplicated, Layout::kSharded}) {
    std::vector<PlanMatrix> matrices;
    for (int i = 0; i < 8; ++i) matrices.push_back(Matrix("m" + std::to_string(i), 16, 8, layout));
    const Plan plan = Build(Request(Strategy::kOwner, 2, 2, matrices));
    std::map<int, int> runs;
    for (const auto& lanes : plan.lanes) {
      for (std::int32_t index : lanes[static_cast<int>(Lane::kCompute)]) {
        if (plan.ops[index].kind == OpKind::kOrthogonalize) ++runs[plan.ops[index].matrix];
      }
    }
    EXPECT_EQ(runs.size(), 8u);
    for (const auto& [matrix, count] : runs) EXPECT_EQ(count, 1) << matrix;
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(CostOfRank(plan, rank).owned, 2);
  }
}

// A matrix's reduction and publication take one collective each, on every lane that they use, and
// none falls between momentum and the end of its NS: except that gather brings the update
// together there. Between NS and apply stands the publication of a direction to shards, or nothing.
RC_GTEST_PROP(Cases, Case31TwoCollectivesPerMatrixAndStep, ()) {
  const auto built = BuildPlan(DrawRequest({}));
  RC_ASSERT(built.status() == absl::OkStatus());
  const Plan& plan = *built;
  for (const auto& lanes : plan.lanes) {
    std::map<std::int32_t, std::map<OpKind, std::int32_t>> computes;
    for (std::int32_t index : lanes[static_cast<int>(Lane::kCompute)]) {
      for (std::int32_t m : MatricesOf(plan, plan.ops[index])) {
        computes[m][plan.ops[index].kind] = index;
      }
    }
    const auto place = [&](std::int32_t matrix, OpKind kind) {
      const auto& mine = computes[matrix];
      return mine.count(kind) == 1 ? mine.at(kind) : -1;
    };
    for (Lane lane : {Lane::kIntra, Lane::kInter}) {
      std::map<std::int32_t, int> publications, gathers, fetches;
      std::map<std::pair<std::int32_t, std::int32_t>, int> reductions;  // by matrix and pass
      for (std::int32_t index : lanes[static_cast<int>(lane)]) {
        const Op& op = plan.ops[index];
        if (op.kind == OpKind::kVerdict || !IsCollective(op.kind)) continue;
        if (op.piece > 0) continue;  // of one collective
        for (std::int32_t m : MatricesOf(plan, op)) {
          // Custom rules bring weights together, too.
          if (plan.matrices[m].rule == RuleKind::kCustom) continue;
          if (op.trigger == Trigger::kNeeded) {
            ++fetches[m];
            continue;
          }
          if (op.stage == Stage::kReduced) {
            ++reductions[{m, op.pass}];
          } else if (op.when == When::kRefresh && op.kind == OpKind::kGather) {
            ++gathers[m];
          } else if (op.when != When::kBetween) {
            ++publications[m];
          }
          const std::int32_t momentum = place(m, OpKind::kMomentum);
          const std::int32_t ns = place(m, OpKind::kOrthogonalize);
          const std::int32_t apply = place(m, OpKind::kApply);
          if (ns >= 0 && momentum < index && index < ns) {
            // Updates of shards are gathered, or norms of them summed.
            const bool update = op.source == Slot::kUpdate || op.source == Slot::kNodeUpdate;
            const OpKind way = plan.matrices[m].owner < 0 ? OpKind::kAllGather : OpKind::kGather;
            const bool brings = update && op.kind == way;
            const bool sums = op.source == Slot::kNormSquares && op.kind == OpKind::kAllReduce;
            RC_ASSERT(brings || sums);
            if (sums) RC_ASSERT(op.when == When::kBetween);
            if (op.kind == OpKind::kGather) RC_ASSERT(op.when == When::kRefresh);
          }
          if (ns >= 0 && ns < index && index < apply) {
            const bool to_replicas =
                op.kind == OpKind::kBroadcast && plan.matrices[m].layout == Layout::kNodeSharded;
            RC_ASSERT(op.kind == OpKind::kScatter || to_replicas);
            RC_ASSERT(plan.matrices[m].owner >= 0 && InShards(plan.matrices[m].layout));
          }
        }
      }
      for (const auto& [matrix, count] : fetches) {
        RC_ASSERT(count <= 2 * plan.limits.passes);
        RC_ASSERT(publications.count(matrix) == 0u);
      }
      for (const auto& [matrix, count] : reductions) RC_ASSERT(count == 1);
      for (const auto& [matrix, count] : publications) RC_ASSERT(count == 1);
      for (const auto& [matrix, count] : gathers) RC_ASSERT(count == 1);
    }
  }
}

}  // namespace
}  // namespace weft::testing
