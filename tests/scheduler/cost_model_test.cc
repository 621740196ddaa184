#include "weft/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/scheduler/profiles.h"
#include "tests/support/costs.h"
#include "weft/plan.h"
#include "weft/plan_cost.h"
#include "weft/topology_preset.h"

namespace weft {
namespace {

using testing::Evenly;
using testing::Shape;
using testing::SmallProfile;

constexpr CostSource kMeasured = CostSource::kMeasured;
constexpr CostSource kInterpolated = CostSource::kInterpolated;
constexpr CostSource kAnalytic = CostSource::kAnalytic;

void ExpectCost(const CostEstimate& estimate, double seconds, CostSource source) {
  EXPECT_NEAR(estimate.seconds, seconds, 1e-12 * seconds);
  EXPECT_EQ(estimate.source, source);
}

class Model : public ::testing::Test {
 protected:
  const Topology topology_ = {{2, 2}, {10, 12.5}, {20.25, 3}, 1};
  const CostModel model_ = CostModel(SmallProfile(), topology_);
  const CostModel analytic_ = CostModel(topology_, {1e9, 1e8, 1e-6});
};

TEST_F(Model, MeasuredBatchesAreGivenBack) {
  ExpectCost(model_.Compute({Shape(100, 200), 1e6}, 1), 1e-3, kMeasured);
  ExpectCost(model_.Compute({Shape(200, 100), 1e6}, 4), 3e-3, kMeasured);
}

TEST_F(Model, BatchesBetweenAndBeyondMeasuredOnes) {
  ExpectCost(model_.Compute({Shape(100, 200), 1e6}, 2), 1e-3 + 2e-3 / 3, kInterpolated);
  ExpectCost(model_.Compute({Shape(100, 200), 1e6}, 8), 6e-3, kInterpolated);
  ExpectCost(model_.Compute({Shape(200, 400), 8e6}, 3), 12e-3, kInterpolated);
}

TEST_F(Model, OtherShapesGoByFlops) {
  // Rates 1e9 at 1e6 FLOPs and 2e9 at 8e6: half way in the logarithm is sqrt(8) * 1e6.
  const double between = std::sqrt(8.0) * 1e6;
  ExpectCost(model_.Compute({Shape(120, 320), between}, 1), between / 1.5e9, kInterpolated);
  ExpectCost(model_.Compute({Shape(10, 20), 1e3}, 1), 1e-6, kInterpolated);
  ExpectCost(model_.Compute({Shape(400, 800), 64e6}, 1), 32e-3, kInterpolated);
  // At the batch of 4 the smaller shape has the rate 4e6 / 3e-3.
  ExpectCost(model_.Compute({Shape(10, 20), 1e3}, 4), 3e-6, kInterpolated);
  // Another recipe of a measured shape is another shape.
  ExpectCost(model_.Compute({Shape(100, 200, "plain 5"), 1e6}, 1), 1e-3, kInterpolated);
  // As is another type, where none of it is measured.
  ExpectCost(model_.Compute({Shape(100, 200, "gram 2,2,1", DType::kBF16), 1e6}, 1), 1e-3,
             kInterpolated);
}

TEST_F(Model, OfEqualFlopsTheNearestAspectServes) {
  CostProfile profile = SmallProfile();
  profile.compute = {{Shape(100, 100), 1, 1e6, 1e-3, 0}, {Shape(50, 800), 1, 1e6, 2e-3, 0}};
  const CostModel model(profile, topology_);
  ExpectCost(model.Compute({Shape(100, 110), 1e6}, 1), 1e-3, kInterpolated);
  ExpectCost(model.Compute({Shape(900, 50), 1e6}, 1), 2e-3, kInterpolated);
}

TEST_F(Model, WithoutMeasurementsTheModelServes) {
  EXPECT_FALSE(analytic_.measured());
  EXPECT_EQ(analytic_.Describe(), "analytic model (no profile)");
  EXPECT_EQ(model_.Describe(), "measured 2026-11-30T12:00:00Z on AMD EPYC, 2 CPUs");
  ExpectCost(analytic_.Compute({Shape(100, 200), 1e6, 0, 17}, 3), 17e-6 + 3e-3, kAnalytic);
  const ComputeShape norm = {ComputeKind::kRowNorm, 100, 200, DType::kF32, ""};
  ExpectCost(analytic_.Compute({norm, 6e4, 24e4, 1}, 1), 1e-6 + 24e-4, kAnalytic);
  // The profile has no row norms.
  EXPECT_EQ(model_.Compute({norm, 6e4, 24e4, 1}, 1).source, kAnalytic);
  EXPECT_EQ(analytic_.Compute({Shape(0, 200), 0, 0, 17}, 3).seconds, 0);
  EXPECT_EQ(model_.Compute({Shape(200, 0), 0, 0, 17}, 3).seconds, 0);
}

TEST_F(Model, CollectivesComeFromTheFit) {
  const auto all_reduce = [&](int ranks, double bytes) {
    return model_.Collective(OpKind::kAllReduce, GroupClass::kWorld, ranks, bytes);
  };
  ExpectCost(all_reduce(4, 1e6), 30e-6 + 1e6 / 2e9, kMeasured);
  ExpectCost(model_.Collective(OpKind::kVerdict, GroupClass::kWorld, 4, 0), 30e-6, kMeasured);
  // Hops 3 -> 7; share of the payload 3/4 -> 7/8.
  ExpectCost(all_reduce(8, 1e6), 30e-6 * 7 / 3 + 1e6 / 2e9 * (7.0 / 8) / (3.0 / 4), kInterpolated);
  EXPECT_EQ(all_reduce(1, 1e6).seconds, 0);
}

TEST_F(Model, OtherCollectivesAreAnalytic) {
  const auto broadcast = [&](GroupClass group, int ranks) {
    return model_.Collective(OpKind::kBroadcast, group, ranks, 1e6);
  };
  ExpectCost(broadcast(GroupClass::kIntra, 2), 10e-6 + 1e6 / 12.5e9, kAnalytic);
  ExpectCost(broadcast(GroupClass::kInter, 2), 20.25e-6 + 1e6 / 3e9, kAnalytic);
  // The world spans nodes: the slower of both.
  ExpectCost(broadcast(GroupClass::kWorld, 4), 3 * 20.25e-6 + 1e6 / 3e9, kAnalytic);
  ExpectCost(model_.Collective(OpKind::kGather, GroupClass::kIntra, 4, 1e6),
             30e-6 + 0.75e6 / 12.5e9, kAnalytic);
  const CostModel one_node(Topology{{1, 4}, {10, 12.5}, {20.25, 3}, 1});
  ExpectCost(one_node.Collective(OpKind::kBroadcast, GroupClass::kWorld, 4, 1e6),
             30e-6 + 1e6 / 12.5e9, kAnalytic);
}

TEST_F(Model, RootComplexesBoundCollectives) {
  // Each of two ranks below one root complex adds a pass of the ring; a chain of two has one hop.
  Topology topology = {{1, 2}, {10, 12.5}, {}, 1};
  topology.root_complex_gigabytes_per_second = 5;
  const CostModel model(topology);
  ExpectCost(model.Collective(OpKind::kAllReduce, GroupClass::kWorld, 2, 1e6), 2 * 1e6 / 5e9,
             kAnalytic);
  ExpectCost(model.Collective(OpKind::kBroadcast, GroupClass::kWorld, 2, 1e6), 1e6 / 5e9,
             kAnalytic);
  topology.intra_class = LinkClass::kNvlink;
  ExpectCost(CostModel(topology).Collective(OpKind::kBroadcast, GroupClass::kWorld, 2, 1e6),
             10e-6 + 1e6 / 12.5e9, kAnalytic);
}

RC_GTEST_PROP(CostModel, AnswersArePositiveAndKnowWhatIsMeasured, ()) {
  const CostProfile profile = testing::DrawProfile();
  const CostModel model(profile, profile.fingerprint.topology);
  for (const ComputeSample& sample : profile.compute) {
    const CostEstimate estimate = model.Compute({sample.shape, sample.flops}, sample.batch);
    RC_ASSERT(estimate.source == kMeasured);
    RC_ASSERT(estimate.seconds == sample.seconds);
  }
  const double flops = *Evenly(1, 1'000'000'000);
  for (const int batch : {1, 2, 7, 100}) {
    const CostEstimate estimate = model.Compute({Shape(3, 4, "other"), flops, 0, 1}, batch);
    RC_ASSERT(std::isfinite(estimate.seconds) && estimate.seconds > 0);
    RC_ASSERT(estimate.source != kMeasured);
  }
  for (const CollectiveCost& cost : profile.collectives) {
    const CostEstimate estimate = model.Collective(cost.kind, cost.group, cost.ranks, 12345);
    RC_ASSERT(estimate.source == kMeasured);
    RC_ASSERT(estimate.seconds == cost.fit.Seconds(12345));
    RC_ASSERT(model.Collective(cost.kind, cost.group, 1000, 12345).source == kInterpolated);
  }
}

TEST_F(Model, TablesAreSharedByEqualWork) {
  const OwnedWork small = {{Shape(100, 200), 1e6}};
  const OwnedWork tall = {{Shape(200, 100), 1e6}};
  const OwnedWork alone = {{Shape(200, 400, "custom"), 8e6}, false};
  const BatchTables tables = MakeBatchTables(
      model_, std::vector<std::optional<OwnedWork>>{small, std::nullopt, alone, tall});
  EXPECT_EQ(tables.matrix_table, (std::vector<std::int32_t>{0, -1, 1, 0}));
  ASSERT_EQ(tables.batch_costs.size(), 2u);
  ASSERT_EQ(tables.batch_costs[0].size(), static_cast<std::size_t>(kLargestBatch));
  for (int batch = 1; batch <= kLargestBatch; ++batch) {
    EXPECT_EQ(tables.batch_costs[0][batch - 1], model_.Compute(small.work, batch).seconds);
  }
  EXPECT_EQ(tables.batch_costs[1].size(), 1u);
  EXPECT_EQ(tables.table_source, (std::vector<CostSource>{kMeasured, kInterpolated}));
  EXPECT_EQ(tables.source, kInterpolated);
}

// The tables are what a plan request takes, and move owners where FLOPs would not.
TEST_F(Model, TablesDecideOwners) {
  // By FLOPs one large matrix outweighs four small ones; measured, two small ones cost half of it.
  std::vector<PlanMatrix> matrices;
  std::vector<std::optional<OwnedWork>> work;
  for (int i = 0; i < 5; ++i) {
    const bool large = i == 0;
    matrices.push_back(
        testing::Matrix("m" + std::to_string(i), large ? 200 : 100, large ? 400 : 200));
    work.push_back(OwnedWork{{large ? Shape(200, 400) : Shape(100, 200), large ? 8e6 : 1e6}});
    matrices.back().flops = work.back()->work.flops;
  }
  CostProfile profile = SmallProfile();
  profile.compute = {{Shape(100, 200), 1, 1e6, 2e-3, 0}, {Shape(200, 400), 1, 8e6, 4e-3, 0}};
  PlanRequest request = testing::Request(Strategy::kOwner, 1, 2, matrices);
  const auto smalls_beside_the_large = [&] {
    const Plan plan = *BuildPlan(request);
    int beside = 0;
    for (int i = 1; i < 5; ++i) beside += plan.matrices[i].owner == plan.matrices[0].owner;
    return beside;
  };
  EXPECT_EQ(smalls_beside_the_large(), 0);
  const BatchTables tables = MakeBatchTables(CostModel(profile, topology_), work);
  request.ownership.batch_costs = tables.batch_costs;
  request.ownership.matrix_table = tables.matrix_table;
  EXPECT_EQ(smalls_beside_the_large(), 1);
  const std::vector<double> seconds = OwnerSeconds(*BuildPlan(request), tables);
  EXPECT_NEAR(seconds[0], 6e-3, 1e-15);
  EXPECT_NEAR(seconds[1], 6e-3, 1e-15);
}

TEST(OwnerSeconds, TakesTheCheapestBatches) {
  // Five matrices of one table, two of another and one without an owner, all of rank 1.
  BatchTables tables;
  tables.batch_costs = {{4, 5, 9}, {1}};
  tables.matrix_table = {0, 0, 0, 0, 0, 1, 1, -1};
  Plan plan;
  plan.topology.grid = {1, 2};
  for (int i = 0; i < 8; ++i) {
    plan.matrices.push_back(testing::Matrix("m", 1, 1));
    plan.matrices.back().owner = i < 7 ? 1 : -1;
  }
  // 2 + 2 + 1 (or 2 + 3) matrices for 5 + 5 + 4, and 1 + 1.
  EXPECT_EQ(OwnerSeconds(plan, tables), (std::vector<double>{0, 14 + 2}));
}

// A group of one has no collectives: nothing costs nothing in either form.
TEST(ChooseForms, NeverSplitsForOneRank) {
  const auto choose = [](const ProcessGrid& grid) {
    Topology topology;
    topology.grid = grid;
    return ChooseForms(*testing::CostsWithForms(topology, testing::kAlwaysSplit));
  };
  EXPECT_EQ(choose({1, 1}), FormChoices());
  EXPECT_EQ(choose({1, 4}), (FormChoices{{1, 1, -1}, {1, 1, -1}}));
  EXPECT_EQ(choose({4, 1}), (FormChoices{{1, -1, 1}, {1, -1, 1}}));
  EXPECT_EQ(choose({2, 2}), (FormChoices{{1, 1, 1}, {1, 1, 1}}));
}

TEST(ChooseForms, FollowsTheFits) {
  Topology topology;
  topology.grid = {1, 4};
  topology.intra = {10, 1};
  const auto from = [&](const LinkFit& direct, const LinkFit& part, const LinkFit& whole) {
    CostProfile profile;
    const auto add = [&](OpKind kind, const LinkFit& fit) {
      profile.collectives.push_back({kind, GroupClass::kWorld, 4, fit, {}});
    };
    add(OpKind::kReduce, direct);
    add(OpKind::kReduceScatter, part);
    add(OpKind::kGather, whole);
    add(OpKind::kBroadcast, direct);
    add(OpKind::kScatter, part);
    add(OpKind::kAllGather, whole);
    const FormChoices choices = ChooseForms(CostModel(profile, topology));
    EXPECT_EQ(choices.reduce_split_from, choices.broadcast_split_from);
    // Nothing is measured inside the node, where the model has a pipeline of all ranks.
    EXPECT_EQ(choices.reduce_split_from[1], -1);
    return choices.reduce_split_from[0];
  };
  const LinkFit nanosecond_per_byte = {0, 1};
  // 2^18 bytes take 262.1 us, of which 0.95 are 249.04 us.
  EXPECT_EQ(from(nanosecond_per_byte, {200, 0}, {49, 0}), 1 << 18);
  EXPECT_EQ(from(nanosecond_per_byte, {49, 0}, {200, 0}), 1 << 18);
  EXPECT_EQ(from(nanosecond_per_byte, {200, 0}, {50, 0}), 1 << 19);
  EXPECT_EQ(from(nanosecond_per_byte, {2000, 0}, {490, 0}), 1 << 22);
  // A quarter of the time per byte in each part: a half of the bytes' time is gained.
  EXPECT_EQ(from(nanosecond_per_byte, {100, 4}, {17, 4}), 1 << 18);
  // Cheaper by less than a twentieth; and cheaper for small payloads alone.
  EXPECT_EQ(from(nanosecond_per_byte, {0, 2}, {0, 2.1}), -1);
  EXPECT_EQ(from({1000, 1}, {0, 1}, {0, 1}), -1);
}

TEST(ChooseForms, LinksThatTakeNoTimeGiveNoReason) {
  Topology topology;
  topology.grid = {2, 2};
  EXPECT_EQ(ChooseForms(CostModel(topology)), FormChoices());
}

// In the model reductions and broadcasts are pipelines: the payload passes each link once, and two
// parts can gain nothing.
TEST(ChooseForms, PresetsTakeTheDirectFormAndPairBetweenTwoNodes) {
  for (const TopologyPreset& preset : TopologyPresets()) {
    for (const int nodes : {1, 2, 4}) {
      const Topology topology = *Preset(preset.name, nodes);
      const ProcessGrid& grid = topology.grid;
      FormChoices expected;
      expected.pair_from = {grid.size() == 2 ? 1 : -1, grid.ranks_per_node == 2 ? 1 : -1,
                            nodes == 2 ? 1 : -1};
      EXPECT_EQ(ChooseForms(CostModel(topology)), expected) << preset.name << ", nodes: " << nodes;
    }
  }
}

// A pair of two moves as much each way as one reduce-scatter or all-gather of both.
TEST(ChooseForms, PairsWhereBothDirectionsAreCheaperAtOnce) {
  const auto pair_from = [](int ranks, const LinkFit& rooted, const LinkFit& parts,
                            const LinkFit& both_ways) {
    Topology topology;
    topology.grid = {1, ranks};
    CostProfile profile;
    for (const OpKind kind : {OpKind::kReduce, OpKind::kBroadcast}) {
      profile.collectives.push_back({kind, GroupClass::kWorld, ranks, rooted, {}});
    }
    for (const OpKind kind : {OpKind::kGather, OpKind::kScatter}) {
      profile.collectives.push_back({kind, GroupClass::kWorld, ranks, parts, {}});
    }
    for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kAllGather}) {
      profile.collectives.push_back({kind, GroupClass::kWorld, ranks, both_ways, {}});
    }
    return ChooseForms(CostModel(profile, topology)).pair_from[0];
  };
  // GB/s of the payload; a pair of S each is 2 S of the last.
  EXPECT_EQ(pair_from(2, {0, 1}, {0, 2}, {0, 2}), 1);
  EXPECT_EQ(pair_from(3, {0, 1}, {0, 2}, {0, 2}), -1) << "a group of three";
  EXPECT_EQ(pair_from(2, {0, 1}, {0, 2}, {0, 1}), -1) << "links of one direction";
  // 2 S / 1 GB/s against 100 us + S / 1 GB/s, and S / 1 GB/s against 100 us + S / 2 GB/s: from S =
  // 222.2 kB on.
  EXPECT_EQ(pair_from(2, {0, 1}, {0, 2}, {100, 2}), 1 << 18);
  EXPECT_EQ(pair_from(2, {0, 1}, {0, 0}, {0, 2}), -1) << "gathers that cost nothing";
}

// One matrix of 4096 bytes, and one of 4092.
PlanRequest TwoSizes(int nodes, int ranks_per_node, const FormChoices& forms) {
  PlanRequest request =
      testing::Request(Strategy::kOwner, nodes, ranks_per_node,
                       {testing::Matrix("even", 32, 32), testing::Matrix("less", 33, 31)});
  request.forms = ChooseForms(*testing::CostsWithForms(request.topology, forms));
  return request;
}

TEST(ChooseForms, PlansSplitFromExactlyThatPayloadOn) {
  // Reductions on both levels, broadcasts inside nodes alone.
  const Plan plan = *BuildPlan(TwoSizes(2, 2, {{-1, 4096, 4096}, {-1, 4096, -1}}));
  int rooted = 0;
  for (const Op& op : plan.ops) {
    const bool reduce = op.kind == OpKind::kReduce;
    if (!reduce && op.kind != OpKind::kBroadcast) {
      EXPECT_EQ(op.form, CollectiveForm::kDirect);
      continue;
    }
    ++rooted;
    const bool split = op.matrix == 0 && (reduce || op.lane == Lane::kIntra);
    EXPECT_EQ(op.form, split ? CollectiveForm::kSplit : CollectiveForm::kDirect)
        << Name(op.kind) << " of " << plan.matrices[op.matrix].name << " on " << Name(op.lane);
  }
  EXPECT_EQ(rooted, 8);
}

TEST(ChooseForms, ScratchIsCounted) {
  using Scratch = std::array<std::int64_t, kLaneCount>;
  const auto scratch = [](int nodes, int ranks_per_node, const FormChoices& forms) {
    const Plan plan = *BuildPlan(TwoSizes(nodes, ranks_per_node, forms));
    const Plan direct = *BuildPlan(TwoSizes(nodes, ranks_per_node, {}));
    const Scratch first = BuffersOfRank(plan, 0).scratch;
    std::int64_t most = 0;
    for (int rank = 0; rank < nodes * ranks_per_node; ++rank) {
      EXPECT_EQ(BuffersOfRank(plan, rank).scratch, first) << "rank " << rank;
      std::int64_t sum = 0;
      for (const std::int64_t bytes : first) sum += bytes;
      EXPECT_EQ(CostOfRank(plan, rank).buffer_bytes, CostOfRank(direct, rank).buffer_bytes + sum);
      most = std::max(most, CostOfRank(plan, rank).buffer_bytes);
    }
    EXPECT_EQ(plan.limits.buffer_bytes, most);
    return first;
  };
  const auto lanes = [](std::int64_t intra, std::int64_t inter) {
    Scratch bytes = {};
    bytes[static_cast<int>(Lane::kIntra)] = intra;
    bytes[static_cast<int>(Lane::kInter)] = inter;
    return bytes;
  };
  EXPECT_EQ(scratch(1, 3, {}), lanes(0, 0));
  // A third of 1024 numbers, rounded up; of 1023 it is less.
  EXPECT_EQ(scratch(1, 3, testing::kAlwaysSplit), lanes(342 * 4, 0));
  EXPECT_EQ(scratch(2, 4, testing::kAlwaysSplit), lanes(256 * 4, 512 * 4));
  EXPECT_EQ(scratch(2, 4, {{-1, -1, -1}, {-1, -1, 0}}), lanes(0, 512 * 4));
}

}  // namespace
}  // namespace weft
