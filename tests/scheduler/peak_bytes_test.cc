// What a plan says that each matrix takes of a rank's buffers, on its path and on its other one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/memory_replay.h"
#include "tests/scheduler/requests.h"
#include "weft/cost_model.h"
#include "weft/plan.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// 10 x 4 in bf16 on 2 x 2 ranks: 80 bytes, 160 in fp32. Ranks have 3, 3, 3 and 1 rows, nodes 6
// and 4. Gradients are local.
PlanMatrix Small(Layout layout, RuleKind rule = RuleKind::kMuon) {
  PlanMatrix matrix = Matrix("m", 10, 4, layout, GradientKind::kLocal, rule);
  matrix.dtype = DType::kBF16;
  return matrix;
}

PlanMatrix PlannedBy(Strategy strategy, const PlanMatrix& matrix, int owner = -1,
                     const std::function<void(PlanRequest&)>& change = {}) {
  PlanRequest request = Request(strategy, 2, 2, {matrix});
  if (owner >= 0) request.ownership.owners = {owner};
  if (change) change(request);
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  return plan->matrices[0];
}

struct Bytes {
  std::int64_t taken, alternative;
};
void Expect(const PlanMatrix& matrix, Bytes bytes) {
  EXPECT_EQ(matrix.peak_bytes, bytes.taken) << matrix.path;
  EXPECT_EQ(matrix.alternative_peak_bytes, bytes.alternative) << matrix.path;
}

// Gradient, reduced gradient, update, direction.
constexpr std::int64_t kReplicated = 80 + 80 + 160 + 160;
// Gradient, three rows of the reduced one and of the update, whole update, direction.
constexpr std::int64_t kGathered = 80 + 3 * 8 + 3 * 16 + 160 + 160;

TEST(PeakBytes, OfEveryStrategyAndLayout) {
  Expect(PlannedBy(Strategy::kReplicated, Small(Layout::kReplicated)), {kReplicated, -1});
  Expect(PlannedBy(Strategy::kGather, Small(Layout::kReplicated)), {kReplicated, -1});
  Expect(PlannedBy(Strategy::kGather, Small(Layout::kSharded)), {kGathered, -1});
  // The node's sum comes to it on the owner.
  Expect(PlannedBy(Strategy::kOwner, Small(Layout::kReplicated), 0),
         {80 + 80 + 80 + 160 + 160, kReplicated});
  // The owner's node has four rows of the direction and the owner itself one; no rank holds more.
  Expect(PlannedBy(Strategy::kOwner, Small(Layout::kSharded), 3),
         {80 + 80 + 80 + 160 + 160 + 4 * 16 + 16, kGathered});
  Expect(PlannedBy(Strategy::kOwner, Small(Layout::kOwned), 0), {80 + 80 + 80 + 160 + 160, -1});
  // Nobody works out a direction.
  Expect(PlannedBy(Strategy::kOwner, Small(Layout::kSharded, RuleKind::kElementwise)),
         {80 + 3 * 8, -1});
  // An owner that reads its gradient where it lies has as much as who fetches the weight.
  PlanMatrix reduced = Small(Layout::kOwned, RuleKind::kElementwise);
  reduced.gradient = GradientKind::kReduced;
  Expect(PlannedBy(Strategy::kOwner, reduced, 0), {80, -1});
}

TEST(PeakBytes, OfWhatPassesThroughTheOtherPathHasTheDearestOwner) {
  PlanMatrix matrix = Small(Layout::kSharded);
  matrix.pass_through = true;
  // One of three rows in a node of six.
  Expect(PlannedBy(Strategy::kOwner, matrix),
         {kGathered, 80 + 80 + 80 + 160 + 160 + 6 * 16 + 3 * 16});
}

TEST(PeakBytes, AWorldOfOneHasNoChoice) {
  const auto alone = [](PlanRequest& request) { request.topology.grid = {1, 1}; };
  Expect(PlannedBy(Strategy::kOwner, Small(Layout::kSharded), 0, alone), {80 + 160 + 160, -1});
}

TEST(PeakBytes, ASplitCollectiveTakesAPartOnItsLane) {
  const auto split = [](PlanRequest& request) { request.forms.reduce_split_from.fill(0); };
  // Halves on both lanes.
  Expect(PlannedBy(Strategy::kOwner, Small(Layout::kReplicated), 0, split),
         {80 + 80 + 80 + 160 + 160 + 40 + 40, kReplicated});
}

TEST(PeakBytes, ABucketsWeightIsPackedAndItsScratchShared) {
  PlanRequest request =
      Request(Strategy::kOwner, 2, 2, {Small(Layout::kReplicated), Small(Layout::kReplicated)});
  request.matrices[1].name = "n";
  request.matrices[0].flops = request.matrices[1].flops = 0;  // as many as like may have one owner
  request.limits.bucket_bytes = 1 << 20;
  request.forms.reduce_split_from.fill(0);
  const Plan plan = *BuildPlan(request);
  ASSERT_EQ(plan.sets.size(), 1);
  for (const PlanMatrix& matrix : plan.matrices) {
    Expect(matrix, {80 + 80 + 80 + 160 + 160 + 80 + 40 + 40, kReplicated});
  }
}

TEST(PeakBytes, TheValidatorProvesThem) {
  const Plan good = *BuildPlan(Request(Strategy::kOwner, 2, 2, {Small(Layout::kSharded)}));
  for (std::int64_t PlanMatrix::*field :
       {&PlanMatrix::peak_bytes, &PlanMatrix::alternative_peak_bytes}) {
    for (const std::int64_t change : {-1, 1}) {
      Plan plan = good;
      plan.matrices[0].*field += change;
      const absl::Status status = ValidatePlan(plan);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr("matrix 'm' states "));
    }
  }
}

TEST(PeakBytes, ThePlansTextHasThem) {
  PlanRequest request =
      Request(Strategy::kOwner, 2, 2, {Small(Layout::kReplicated), Small(Layout::kOwned)});
  request.matrices[1].name = "n";
  const auto json = nlohmann::json::parse(PlanToJson(*BuildPlan(request)))["matrices"];
  EXPECT_EQ(json[0]["peak_bytes"], 560);
  EXPECT_EQ(json[0]["alternative_peak_bytes"], kReplicated);
  EXPECT_FALSE(json[1].contains("alternative_peak_bytes"));
}

// Of one matrix on its own, by a replay of its plan; with an owner, by that of the dearest.
std::int64_t Replayed(const PlanRequest& request, PlanMatrix matrix, bool pass_through) {
  matrix.pass_through = pass_through;
  PlanRequest alone = Request(Strategy::kOwner, request.topology.grid.nodes,
                              request.topology.grid.ranks_per_node, {std::move(matrix)});
  alone.limits = request.limits;
  alone.limits.buffer_bytes = 0;
  std::int64_t most = 0;
  for (int rank = 0; rank < (pass_through ? 1 : alone.topology.grid.size()); ++rank) {
    alone.ownership.owners = {pass_through ? -1 : rank};
    const absl::StatusOr<Plan> plan = BuildPlan(alone);
    RC_ASSERT(plan.status() == absl::OkStatus());
    most = std::max(most, MatrixBytes(*plan)[0]);
  }
  return most;
}

RC_GTEST_PROP(PeakBytes, AreThoseOfAReplayOfAnyPlan, ()) {
  PlanRequest request = DrawRequest({4, 4, 12, 40});
  // What owners have no work with gets into buckets, however few matrices there are.
  for (PlanMatrix& matrix : request.matrices) {
    if (*rc::gen::arbitrary<bool>()) matrix.flops = 0;
  }
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  RC_ASSERT(plan.status() == absl::OkStatus());
  const std::vector<std::int64_t> bytes = MatrixBytes(*plan);
  std::int64_t sum = 0;
  for (std::size_t m = 0; m < bytes.size(); ++m) {
    RC_ASSERT(plan->matrices[m].peak_bytes == bytes[m]);
    RC_ASSERT(bytes[m] <= plan->limits.buffer_bytes);
    sum += bytes[m];
  }
  // What shares a buffer counts with each matrix.
  RC_ASSERT(plan->limits.buffer_bytes <= sum);
  const auto rank = *Evenly(0, request.topology.grid.size());
  const absl::StatusOr<Plan> own = BuildRankPlan(request, rank);
  RC_ASSERT(own.status() == absl::OkStatus());
  for (std::size_t m = 0; m < bytes.size(); ++m) {
    RC_ASSERT(own->matrices[m].peak_bytes == bytes[m]);
  }
}

RC_GTEST_PROP(PeakBytes, OfTheOtherPathAreThoseOfItsPlan, ()) {
  PlanRequest request = DrawRequest({3, 3, 6, 40});
  request.strategy = Strategy::kOwner;
  request.ownership = {};
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  RC_ASSERT(plan.status() == absl::OkStatus());
  for (const PlanMatrix& matrix : plan->matrices) {
    const bool choice = plan->lanes.size() > 1 && matrix.layout != Layout::kOwned &&
                        matrix.rule != RuleKind::kElementwise;
    RC_ASSERT(choice == (matrix.alternative_peak_bytes >= 0));
    if (!choice) continue;
    std::int64_t expected = Replayed(request, matrix, !matrix.pass_through);
    const bool packed =
        matrix.pass_through && matrix.bucket >= 0 && matrix.layout == Layout::kReplicated;
    if (packed) {
      expected += matrix.rows * matrix.cols * static_cast<std::int64_t>(SizeOf(matrix.dtype));
    }
    RC_ASSERT(matrix.alternative_peak_bytes == expected);
  }
}

// The formulas of docs/adr/0015.
RC_GTEST_PROP(PeakBytes, GoByRowsColumnsAndRanks, ()) {
  const ProcessGrid grid{*Evenly(1, 5), *Evenly(1, 5)};
  RC_PRE(grid.size() > 1);
  PlanMatrix matrix =
      Matrix("m", DrawExtent(60), DrawExtent(60), Layout::kSharded, GradientKind::kReduced);
  matrix.dtype = *rc::gen::elementOf(kDTypes);
  const std::int64_t w = matrix.dtype == DType::kF32 ? 4 : 2;
  const std::int64_t r = matrix.rows, c = matrix.cols;
  const std::int64_t s = (r + grid.size() - 1) / grid.size();
  const std::int64_t m = std::min(r, s * grid.ranks_per_node);
  const bool two_level = grid.nodes > 1 && grid.ranks_per_node > 1;
  const std::int64_t ragged = (w + 4) * s * c + (w + 8) * r * c + (two_level ? (w + 4) * m * c : 0);
  const std::int64_t gathered = (w + 4) * s * c + 8 * r * c;
  PlanRequest request = Request(Strategy::kOwner, grid.nodes, grid.ranks_per_node, {matrix});
  request.ownership.owners = {0};
  const auto stated = [&] {
    const absl::StatusOr<Plan> plan = BuildPlan(request);
    RC_ASSERT(plan.status() == absl::OkStatus());
    return std::pair(plan->matrices[0].peak_bytes, plan->matrices[0].alternative_peak_bytes);
  };
  RC_ASSERT(stated() == std::pair(ragged, gathered));
  request.matrices[0].pass_through = true;
  request.ownership.owners = {-1};
  RC_ASSERT(stated() == std::pair(gathered, ragged));
}

RC_GTEST_PROP(PeakBytes, StandBesideTheSecondsOfBothPaths, ()) {
  PlanRequest request = Request(Strategy::kOwner, *Evenly(1, 4), *Evenly(1, 4), {});
  const auto layout =
      *rc::gen::element(Layout::kReplicated, Layout::kSharded, Layout::kNodeSharded);
  const auto gradient = DrawGradient(layout);
  const auto rule = *rc::gen::element(RuleKind::kMuon, RuleKind::kCustom);
  PlanMatrix matrix = Matrix("m", DrawExtent(40), DrawExtent(40), layout, gradient, rule);
  if (InShards(layout) && *rc::gen::arbitrary<bool>()) {
    matrix.shard_rows = DrawShards(matrix.rows, Shards(layout, request.topology.grid));
  }
  const CostModel model(request.topology, {1e12, 0, 0});
  OwnedWork work;
  work.work.shape = {ComputeKind::kNewtonSchulz, 8, 8, DType::kF32, "plain 5"};
  PassThroughCosts costs = ComparePassThrough(model, matrix, work);
  RC_ASSERT(costs.owner.peak_bytes == Replayed(request, matrix, false));
  RC_ASSERT(costs.pass_through.peak_bytes == Replayed(request, matrix, true));
  // Among others a replicated weight goes packed.
  const std::int64_t bytes = matrix.rows * matrix.cols * 4;
  const ProcessGrid& grid = model.topology().grid;
  const bool replicated =
      layout == Layout::kReplicated ||
      (layout == Layout::kNodeSharded && grid.nodes > 1 && grid.ranks_per_node == 1);
  const bool packed = replicated && bytes > 0 && grid.size() > 1;
  const std::int64_t before = costs.owner.peak_bytes;
  costs = ComparePassThrough(model, matrix, work, {2.0 * static_cast<double>(bytes), 1});
  RC_ASSERT(costs.owner.peak_bytes == before + (packed ? bytes : 0));
}

}  // namespace
}  // namespace weft::testing
