#include "weft/strategy_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/priced.h"
#include "tests/scheduler/requests.h"
#include "tests/support/property.h"
#include "weft/plan_cost.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kCases = 300;

const StrategyAlternative& Of(const StrategyChoice& choice, Strategy strategy) {
  return *std::find_if(choice.alternatives.begin(), choice.alternatives.end(),
                       [&](const auto& each) { return each.strategy == strategy; });
}

PlanRequest Under(Strategy strategy, PlanRequest request) {
  request.strategy = strategy;
  if (strategy == Strategy::kOwner) return request;
  request.ownership.owners.clear();
  for (PlanMatrix& matrix : request.matrices) matrix.pass_through = false;
  return request;
}

PlanRequest DrawAny() {
  DrawLimits limits;
  limits.most_nodes = 3;
  limits.most_ranks_per_node = 3;
  limits.most_matrices = 8;
  if (*rc::gen::arbitrary<bool>()) limits.layouts = {Layout::kReplicated};
  PlanRequest request = DrawRequest(limits);
  request.topology = DrawLinks(request.topology.grid);
  return request;
}

// Each strategy asked for itself.
TEST(ChoosesStrategy, OfLeastPredictedStepWhateverIsAskedFirst) {
  HoldsInCases(kCases, [] {
    const PlanRequest request = DrawAny();
    const CostModel model(request.topology, PricedRates());
    const absl::StatusOr<StrategyChoice> choice = ChooseStrategy(request, model);
    int feasible = 0;
    double least = 0;
    for (const Strategy strategy : AllStrategies()) {
      const absl::StatusOr<Plan> plan = BuildPlan(Under(strategy, request));
      if (!plan.ok()) {
        if (!choice.ok()) continue;
        RC_ASSERT(Of(*choice, strategy).infeasible == std::string(plan.status().message()));
        continue;
      }
      const absl::StatusOr<CyclePrediction> prediction = EvaluateCycle(*plan, model);
      RC_ASSERT(prediction.ok());
      if (!choice.ok() || !Of(*choice, strategy).infeasible.empty()) {
        // The plan could be made, but for the cap on state.
        RC_ASSERT(request.ownership.state_bytes_cap > 0);
        continue;
      }
      const StrategyAlternative& alternative = Of(*choice, strategy);
      RC_ASSERT(alternative.step_seconds == prediction->step_seconds);
      RC_ASSERT(alternative.exposed_seconds == prediction->exposed_seconds);
      std::int64_t peak = 0;
      for (int rank = 0; rank < request.topology.grid.size(); ++rank) {
        const RankCost cost = CostOfRank(*plan, rank);
        peak = std::max(peak, cost.buffer_bytes + cost.state_bytes);
      }
      RC_ASSERT(alternative.peak_bytes == peak);
      if (feasible == 0 || prediction->step_seconds < least) least = prediction->step_seconds;
      ++feasible;
    }
    RC_ASSERT(choice.ok() == (feasible > 0));
    if (!choice.ok()) return;
    RC_ASSERT(choice->prediction.step_seconds == least);
    RC_ASSERT(choice->plan.strategy == choice->strategy);
    RC_ASSERT(choice->alternatives.size() == AllStrategies().size());
    RC_ASSERT(choice->alternatives[0].strategy == choice->strategy);
    for (std::size_t i = 1; i < choice->alternatives.size(); ++i) {
      const StrategyAlternative &a = choice->alternatives[i - 1], &b = choice->alternatives[i];
      RC_ASSERT((a.infeasible.empty() || !b.infeasible.empty()));
      if (b.infeasible.empty()) RC_ASSERT(a.step_seconds <= b.step_seconds);
    }
    // In another order.
    std::vector<Strategy> turned = AllStrategies();
    std::reverse(turned.begin(), turned.end());
    const auto make = [&](Strategy strategy) -> absl::StatusOr<Plan> {
      const StrategyAlternative& known = Of(*choice, strategy);
      if (!known.infeasible.empty()) return absl::FailedPreconditionError(known.infeasible);
      return BuildPlan(Under(strategy, request));
    };
    const absl::StatusOr<StrategyChoice> again = ChooseAmong(turned, make, model);
    RC_ASSERT(again.ok());
    RC_ASSERT(again->strategy == choice->strategy);
    RC_ASSERT(again->reason == choice->reason);
    RC_ASSERT(Fingerprint(again->plan) == Fingerprint(choice->plan));
    for (std::size_t i = 0; i < turned.size(); ++i) {
      RC_ASSERT(again->alternatives[i].strategy == choice->alternatives[i].strategy);
    }
  });
}

PlanRequest TwoMatrices(Layout layout) {
  PlanRequest request = Request(Strategy::kOwner, 1, 4,
                                {Matrix("a", 512, 512, layout), Matrix("b", 512, 512, layout)});
  request.topology.intra.gigabytes_per_second = 10;
  return request;
}

// Work that is repeated on every rank costs more than moving what one rank has made of it.
TEST(ChoosesStrategy, OwnersWhereTheRuleIsDear) {
  PlanRequest request = TwoMatrices(Layout::kReplicated);
  for (PlanMatrix& matrix : request.matrices) matrix.flops = 1e12;
  const absl::StatusOr<StrategyChoice> choice =
      ChooseStrategy(request, CostModel(request.topology));
  ASSERT_EQ(choice.status(), absl::OkStatus());
  EXPECT_EQ(choice->strategy, Strategy::kOwner);
  EXPECT_THAT(choice->reason, AllOf(HasSubstr("owner is predicted to take"),
                                    HasSubstr("replicated"), HasSubstr("bound by compute")));
}

// Under `gather` replicated matrices take the same way, and the simpler name wins.
TEST(ChoosesStrategy, TheSimplerOneOfEqualSteps) {
  PlanRequest request = TwoMatrices(Layout::kReplicated);
  for (PlanMatrix& matrix : request.matrices) matrix.flops = 1;
  request.topology.intra.latency_us = 1000;
  const absl::StatusOr<StrategyChoice> choice =
      ChooseStrategy(request, CostModel(request.topology));
  ASSERT_EQ(choice.status(), absl::OkStatus());
  EXPECT_EQ(choice->strategy, Strategy::kReplicated);
  EXPECT_EQ(choice->alternatives[1].strategy, Strategy::kGather);
  EXPECT_EQ(choice->alternatives[1].fallbacks, 2);
  EXPECT_EQ(choice->alternatives[1].step_seconds, choice->alternatives[0].step_seconds);
  EXPECT_THAT(choice->reason, HasSubstr("as gather (of equal steps the simpler"));
}

TEST(ChoosesStrategy, OnlyWhatServesTheLayoutAndFitsTheMemory) {
  const PlanRequest sharded = TwoMatrices(Layout::kSharded);
  const CostModel model(sharded.topology);
  absl::StatusOr<StrategyChoice> choice = ChooseStrategy(sharded, model);
  ASSERT_EQ(choice.status(), absl::OkStatus());
  EXPECT_THAT(Of(*choice, Strategy::kReplicated).infeasible, HasSubstr("sharded"));

  PlanRequest small = TwoMatrices(Layout::kReplicated);
  small.limits.buffer_bytes = 1;
  EXPECT_THAT(std::string(ChooseStrategy(small, model).status().message()),
              AllOf(HasSubstr("no strategy is feasible"), HasSubstr("replicated: "),
                    HasSubstr("owner: "), HasSubstr("bytes")));

  PlanRequest capped = TwoMatrices(Layout::kReplicated);
  // State of one matrix each, which is 4 bytes an element.
  capped.ownership.state_bytes_cap = 4 * 512 * 512;
  choice = ChooseStrategy(capped, model);
  ASSERT_EQ(choice.status(), absl::OkStatus());
  EXPECT_EQ(choice->strategy, Strategy::kOwner);
  EXPECT_EQ(Of(*choice, Strategy::kReplicated).infeasible,
            "rank 0 would hold 2097152 bytes of optimizer state, more than the cap of 1048576.");
  EXPECT_THAT(choice->reason, HasSubstr("no other strategy is feasible."));
}

TEST(ChoosesStrategy, OnlyForGoodQuestions) {
  PlanRequest request = TwoMatrices(Layout::kReplicated);
  const CostModel model(request.topology);
  EXPECT_EQ(ChooseAmong(
                {}, [](Strategy) { return Plan{}; }, model)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  Topology other = request.topology;
  other.grid.nodes = 2;
  EXPECT_EQ(ChooseStrategy(request, CostModel(other)).status().code(),
            absl::StatusCode::kInvalidArgument);
  // What all refuse alike is told once.
  request.matrices[0].rows = -1;
  EXPECT_EQ(ChooseStrategy(request, model).status(), BuildPlan(request).status());
}

}  // namespace
}  // namespace weft::testing
