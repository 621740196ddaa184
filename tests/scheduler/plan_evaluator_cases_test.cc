// Predicted steps worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"
#include "weft/plan_evaluator.h"

namespace weft::testing {
namespace {

constexpr double kSecond = 1;
constexpr double kNoTime = 1e-6;  // what verdicts take of cases whose times are seconds

// A gigabyte per matrix in fp32, a tera-FLOP, on a device that makes one of them per second and to
// which memory is nothing.
PlanMatrix Gigabyte(const char* name, GradientKind gradient = GradientKind::kLocal) {
  PlanMatrix matrix = Matrix(name, 10000, 25000, Layout::kReplicated, gradient);
  matrix.flops = 1e12;
  return matrix;
}
AnalyticRates OneTeraflop() {
  return {.flops_per_second = 1e12,
          .bytes_per_second = std::numeric_limits<double>::infinity(),
          .launch_seconds = 0};
}

StepPrediction Evaluate(const PlanRequest& request, const TrainerModel& trainer = {}) {
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  const CostModel model(request.topology, OneTeraflop());
  absl::StatusOr<StepPrediction> prediction = EvaluatePlan(*plan, model, trainer);
  EXPECT_EQ(prediction.status(), absl::OkStatus());
  return *std::move(prediction);
}

double CriticalOf(const StepPrediction& prediction, Lane lane) {
  return prediction.critical_seconds[static_cast<int>(lane)];
}

// Momentum and apply of one matrix: 16 and 12 bytes an element, at three FLOPs for twelve bytes.
constexpr double kMemory = 250e6 * (16 + 12) / 4 / 1e12;

// Two all-reduces of 2 * (1/2) GB at 1 GB/s, then two rules on each rank.
TEST(EvaluatesByHand, ReplicatedReducesThenRepeatsTheWork) {
  PlanRequest request = Request(Strategy::kReplicated, 1, 2, {Gigabyte("a"), Gigabyte("b")});
  request.topology.intra.gigabytes_per_second = 1;
  const StepPrediction prediction = Evaluate(request);
  EXPECT_NEAR(prediction.step_seconds, 2 + 2 * (1 + kMemory), kNoTime);
  EXPECT_NEAR(CriticalOf(prediction, Lane::kIntra), 2, kNoTime);
  EXPECT_NEAR(CriticalOf(prediction, Lane::kCompute), 2 * (1 + kMemory), kNoTime);
  EXPECT_NEAR(prediction.exposed_seconds, 2, kNoTime);
  EXPECT_NEAR(prediction.ranks[1].exposed[static_cast<int>(Lane::kIntra)], 2, kNoTime);
  EXPECT_NEAR(prediction.delivered_seconds[0], 2 + 1 + kMemory, kNoTime);
  EXPECT_NEAR(prediction.delivered_seconds[1], 2 + 2 * (1 + kMemory), kNoTime);
  EXPECT_EQ(BoundText(prediction), "compute 50 %, intra 50 %");
}

PlanRequest TwoInterGroups(int nics) {
  PlanRequest request = Request(Strategy::kOwner, 2, 2, {Gigabyte("a"), Gigabyte("b")});
  request.topology.inter.gigabytes_per_second = 1;
  request.topology.nics_per_node = nics;
  request.ownership.owners = {0, 1};
  return request;
}

// Two owners in two inter groups. With a NIC each, both reductions and both broadcasts take their
// second side by side; on one NIC they share it and take two.
TEST(EvaluatesByHand, OneNicIsSharedByTwoInterGroups) {
  const StepPrediction apart = Evaluate(TwoInterGroups(2));
  EXPECT_NEAR(apart.step_seconds, 1 + (1 + kMemory) + 1, kNoTime);
  EXPECT_NEAR(apart.critical_sharing, 0, kNoTime);
  const StepPrediction shared = Evaluate(TwoInterGroups(1));
  EXPECT_NEAR(shared.step_seconds, 2 + (1 + kMemory) + 2, kNoTime);
  EXPECT_NEAR(shared.critical_sharing, 2, kNoTime);
  EXPECT_NEAR(shared.ranks[3].busy[static_cast<int>(Lane::kInter)], 4, kNoTime);
}

// The second matrix is half of the first: at one NIC its reduction ends when both have carried half
// a gigabyte, at 1 s, and the first has the NIC alone for its other half: 1.5 s. So in publishing.
TEST(EvaluatesByHand, WhoIsLeftAloneGoesOnAtFullRate) {
  PlanRequest request = TwoInterGroups(1);
  request.matrices[1].cols /= 2;
  request.matrices[0].flops = request.matrices[1].flops = 0;
  const StepPrediction prediction = Evaluate(request);
  // The half matrix is published from kMemory / 2 on, alone until the other comes. Inside nodes it
  // stands behind the other one.
  const double head_start = kMemory / 2;
  EXPECT_EQ(prediction.delivered_seconds[1], prediction.step_seconds);
  EXPECT_NEAR(prediction.step_seconds, 1.5 + kMemory + 1.5 - head_start, kNoTime);
}

// One rank, two layers: rules of a second, forward of two, backward of three. The compute lane goes
// first: both matrices are there after two seconds, in which the trainer has had nothing.
TEST(EvaluatesByHand, TheComputeLaneGoesBeforeTheTrainer) {
  const PlanRequest request = Request(Strategy::kReplicated, 1, 1, {Gigabyte("a"), Gigabyte("b")});
  TrainerModel trainer;
  trainer.forward_seconds = {2, 2};
  trainer.backward_seconds = {3, 3};
  const StepPrediction first = Evaluate(request, trainer);
  EXPECT_NEAR(first.step_seconds, 2 * (1 + kMemory) + 4 + 6, kNoTime);
  EXPECT_NEAR(first.delivered_seconds[1], 2 * (1 + kMemory), kNoTime);
  EXPECT_NEAR(first.exposed_seconds, 0, kNoTime);
  EXPECT_NEAR(CriticalOf(first, Lane::kCaller), 10, kNoTime);
  EXPECT_NEAR(CriticalOf(first, Lane::kCompute), 2 * (1 + kMemory), kNoTime);
  // With equal parts the second rule has half of the device until it is done.
  trainer.updates_first = false;
  const StepPrediction equal = Evaluate(request, trainer);
  EXPECT_NEAR(equal.step_seconds, first.step_seconds, kNoTime);
  EXPECT_NEAR(equal.delivered_seconds[1], 3 * (1 + kMemory), kNoTime);
}

// Backward hides the first reduction: the last layer's gradient is there one second before the
// first's. What is left of reducing, and of publishing but for the forward behind it, is exposed.
TEST(EvaluatesByHand, BackwardHidesReductions) {
  PlanRequest request = Request(Strategy::kReplicated, 1, 2, {Gigabyte("a"), Gigabyte("b")});
  for (PlanMatrix& matrix : request.matrices) matrix.flops = 0;
  request.topology.intra.gigabytes_per_second = 1;
  TrainerModel trainer;
  trainer.backward_seconds = {kSecond, kSecond};
  const StepPrediction prediction = Evaluate(request, trainer);
  // Backward of two seconds, of which the second hides one reduction; then the other one, and the
  // passes over memory.
  EXPECT_NEAR(prediction.step_seconds, 2 + 1 + 2 * kMemory, kNoTime);
  EXPECT_NEAR(prediction.exposed_seconds, 1, kNoTime);
  EXPECT_NEAR(prediction.ranks[0].busy[static_cast<int>(Lane::kIntra)], 2, kNoTime);
  EXPECT_NEAR(prediction.ranks[0].exposed[static_cast<int>(Lane::kIntra)], 1, kNoTime);
}

// Two ranks, one owned matrix: update, fetch for the forward use, forward, backward; it stays where
// it is in between. Reducing hides behind nothing.
TEST(EvaluatesByHand, OwnedWeightsAreFetchedBeforeTheirUse) {
  PlanRequest request = Request(Strategy::kOwner, 1, 2, {Gigabyte("a")});
  request.matrices[0].layout = Layout::kOwned;
  request.topology.intra.gigabytes_per_second = 1;
  TrainerModel trainer;
  trainer.forward_seconds = {2 * kSecond};
  trainer.backward_seconds = {4 * kSecond};
  const StepPrediction prediction = Evaluate(request, trainer);
  EXPECT_NEAR(prediction.step_seconds, 1 + (1 + kMemory) + 1 + 2 + 4, kNoTime);
  EXPECT_NEAR(prediction.delivered_seconds[0], 1 + 1 + kMemory, kNoTime);
}

// Each forward waits for its own matrix and no other: the first runs while the second comes.
TEST(EvaluatesByHand, ForwardFollowsDeliveries) {
  PlanRequest request =
      Request(Strategy::kOwner, 1, 2,
              {Gigabyte("a", GradientKind::kReduced), Gigabyte("b", GradientKind::kReduced)});
  for (PlanMatrix& matrix : request.matrices) matrix.flops = 0;
  request.topology.intra.gigabytes_per_second = 1;
  request.ownership.owners = {0, 0};
  TrainerModel trainer;
  trainer.forward_seconds = {3 * kSecond, 3 * kSecond};
  const StepPrediction prediction = Evaluate(request, trainer);
  // The owner's passes over memory, the first broadcast, and both forwards.
  EXPECT_NEAR(prediction.step_seconds, kMemory + 1 + 6, kNoTime);
  EXPECT_NEAR(prediction.delivered_seconds[1], kMemory + 2, kNoTime);
}

// A layer of two matrices is used when both are there: 2 s of fetching, then 3 s of forward.
TEST(EvaluatesByHand, ALayerIsUsedAsAWhole) {
  PlanRequest request = Request(Strategy::kOwner, 1, 2, {Gigabyte("a"), Gigabyte("b")});
  for (PlanMatrix& matrix : request.matrices) {
    matrix.layout = Layout::kOwned;
    matrix.gradient = GradientKind::kReduced;
    matrix.flops = 0;
  }
  request.topology.intra.gigabytes_per_second = 1;
  request.ownership.owners = {0, 1};
  TrainerModel trainer;
  trainer.forward_seconds = {2 * kSecond, 1 * kSecond};
  const StepPrediction prediction = Evaluate(request, trainer);
  EXPECT_NEAR(prediction.step_seconds, kMemory + 2 + 3, kNoTime);
}

// Room for one layer: the second is fetched when the whole first one is over, and the first again
// for its backward. On the rank that owns nothing: 2 s of fetching before forward's 4 s, and before
// its 2 s, and once more.
TEST(EvaluatesByHand, ALayerIsReleasedAsAWhole) {
  PlanRequest request =
      Request(Strategy::kOwner, 1, 2, {Gigabyte("a"), Gigabyte("b"), Gigabyte("c"), Gigabyte("d")});
  for (PlanMatrix& matrix : request.matrices) {
    matrix.layout = Layout::kOwned;
    matrix.gradient = GradientKind::kReduced;
    matrix.flops = 0;
  }
  request.matrices[2].layer = request.matrices[3].layer = 1;
  request.topology.intra.gigabytes_per_second = 1;
  request.limits.inter_layers_ahead = request.limits.intra_layers_ahead = 0;
  request.ownership.owners = {0, 0, 0, 0};
  TrainerModel trainer;
  trainer.forward_seconds = {1 * kSecond, 3 * kSecond, 1 * kSecond, 1 * kSecond};
  EXPECT_NEAR(Evaluate(request, trainer).step_seconds, kMemory + 2 + 4 + 2 + 2 + 2, kNoTime);
}

// Two layers that stay where they are, fetched when they are needed: a host that is far ahead calls
// for the second at once, one that waits when the first forward is over.
TEST(EvaluatesByHand, AHostThatWaitsCallsForWeightsLate) {
  PlanRequest request = Request(Strategy::kOwner, 1, 2, {Gigabyte("a"), Gigabyte("b")});
  for (PlanMatrix& matrix : request.matrices) {
    matrix.layout = Layout::kOwned;
    matrix.gradient = GradientKind::kReduced;
    matrix.flops = 0;
  }
  request.matrices[1].layer = 1;
  request.topology.intra.gigabytes_per_second = 1;
  request.limits.keep_through_backward = true;
  request.limits.inter_layers_ahead = request.limits.intra_layers_ahead = 0;
  request.ownership.owners = {0, 1};
  TrainerModel trainer;
  trainer.forward_seconds = {3 * kSecond, 3 * kSecond};
  EXPECT_NEAR(Evaluate(request, trainer).step_seconds, kMemory + 1 + 3 + 3, kNoTime);
  trainer.host_waits = true;
  EXPECT_NEAR(Evaluate(request, trainer).step_seconds, kMemory + 1 + 3 + 1 + 3, kNoTime);
}

TEST(EvaluatesByHand, WhatIsMeasuredCounts) {
  PlanRequest request = TwoInterGroups(1);
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  // Links that nobody has described, and collectives that were measured on them.
  request.topology.inter = {};
  CostProfile profile;
  profile.fingerprint.topology = request.topology;
  for (const OpKind kind : {OpKind::kReduce, OpKind::kBroadcast}) {
    profile.collectives.push_back({kind, GroupClass::kInter, 2, {1e6, 0.5, 0, 0}, {}});
  }
  const CostModel model(profile, request.topology, OneTeraflop());
  const absl::StatusOr<StepPrediction> prediction = EvaluatePlan(*plan, model);
  ASSERT_EQ(prediction.status(), absl::OkStatus());
  // A second of latency, in which the NIC is free, and two gigabyte-halves on one NIC: 4 s.
  EXPECT_NEAR(prediction->step_seconds, 5 + (1 + kMemory) + 5, kNoTime);
  EXPECT_NEAR(prediction->critical_sharing, 4, kNoTime);
}

// What the rule asks for comes from `work` where it is told, batches included: two of one shape, on
// which a launch is a second.
TEST(EvaluatesByHand, WorkIsWhatTheRuleTakes) {
  PlanRequest request = Request(Strategy::kReplicated, 1, 1, {Gigabyte("a"), Gigabyte("b")});
  request.ownership = {.batch_costs = {{2, 1}}, .matrix_table = {0, 0}};
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  AnalyticRates rates = OneTeraflop();
  rates.launch_seconds = 1;
  OwnedWork work;
  work.work.shape = {ComputeKind::kNewtonSchulz, 10000, 25000, DType::kF32, "plain 5"};
  work.work.flops = 3e12;
  work.work.launches = 7;
  const CostModel model(request.topology, rates);
  const std::vector<std::optional<OwnedWork>> of_both = {work, work};
  const absl::StatusOr<StepPrediction> prediction = EvaluatePlan(*plan, model, {}, of_both);
  ASSERT_EQ(prediction.status(), absl::OkStatus());
  // One batch of seven launches and two times three seconds; momentum and apply are launches, too.
  EXPECT_NEAR(prediction->step_seconds, 7 + 2 * 3 + 2 * (2 + kMemory), kNoTime);
}

TEST(EvaluatesOnly, WhatFitsTogether) {
  const PlanRequest request = Request(Strategy::kReplicated, 1, 2, {Gigabyte("a")});
  const absl::StatusOr<Plan> built = BuildPlan(request);
  ASSERT_EQ(built.status(), absl::OkStatus());
  const CostModel model(request.topology);
  Topology other = request.topology;
  other.grid.nodes = 2;
  EXPECT_EQ(
      EvaluatePlan(*built, CostModel(other)).status(),
      absl::InvalidArgumentError("the costs are for a grid of 2 x 2, the plan is for 1 x 2."));
  TrainerModel trainer;
  trainer.forward_seconds = {1, 2};
  EXPECT_EQ(EvaluatePlan(*built, model, trainer).status(),
            absl::InvalidArgumentError("the trainer's forward seconds are 2, the matrices 1."));
  trainer.forward_seconds = {};
  trainer.backward_seconds = {-1};
  EXPECT_EQ(EvaluatePlan(*built, model, trainer).status(),
            absl::InvalidArgumentError("the trainer's backward seconds have -1; they must be "
                                       "finite and not negative."));
  const std::vector<std::optional<OwnedWork>> work(3);
  EXPECT_EQ(EvaluatePlan(*built, model, {}, work).status(),
            absl::InvalidArgumentError("the work is of 3 matrices, the plan has 1."));
  const absl::StatusOr<Plan> of_one = BuildRankPlan(request, 0);
  ASSERT_EQ(of_one.status(), absl::OkStatus());
  EXPECT_EQ(EvaluatePlan(*of_one, model).status(),
            absl::InvalidArgumentError("rank 1 has no ops: the plan is not of the whole world."));
}

// A reduction before the fetch on one lane: it waits for the backward pass, that for forward, that
// for the weight.
TEST(EvaluatesOnly, PlansWithoutCycles) {
  PlanRequest request = Request(Strategy::kOwner, 1, 2, {Gigabyte("a")});
  request.matrices[0].layout = Layout::kOwned;
  absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  std::size_t reduce = 0;
  while (plan->ops[reduce].kind != OpKind::kReduce) ++reduce;
  ASSERT_EQ(plan->ops[0].kind, OpKind::kBroadcast);
  const auto begin = plan->ops.begin();
  std::rotate(begin, begin + static_cast<std::ptrdiff_t>(reduce),
              begin + static_cast<std::ptrdiff_t>(reduce) + 1);
  for (auto& lanes : plan->lanes) {
    for (auto& lane : lanes) lane.clear();
    for (std::size_t i = 0; i < plan->ops.size(); ++i) {
      const Op& op = plan->ops[i];
      const auto rank = static_cast<int>(&lanes - plan->lanes.data());
      if (plan->groups[op.group].PartOf(rank) < 0) continue;
      lanes[static_cast<int>(op.lane)].push_back(static_cast<std::int32_t>(i));
    }
  }
  EXPECT_EQ(EvaluatePlan(*plan, CostModel(request.topology)).status(),
            absl::FailedPreconditionError("the plan's ops wait for each other: op 0 of rank 0 "
                                          "never begins."));
}

}  // namespace
}  // namespace weft::testing
