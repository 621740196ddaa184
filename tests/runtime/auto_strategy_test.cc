// Strategy auto: rank 0 chooses, and all ranks work with its plan.
#include "weft/auto_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/model.h"
#include "tests/support/world.h"
#include "weft/log.h"
#include "weft/work.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OptionsFor;
using testing::RankModel;
using testing::RunWorld;

// Of one rank.
struct Committed {
  absl::Status status;
  std::optional<StrategyReport> report;
  Strategy strategy = Strategy::kOwner;
  std::uint64_t fingerprint = 0;
};

// Square matrices with gradients that have been reduced.
RankModel ModelOf(int rank, int matrices, int world, Layout layout) {
  return {std::vector<testing::Shape>(matrices, {32, 32}),
          layout,
          GradientKind::kReduced,
          rank,
          world,
          3};
}

std::vector<Committed> CommitOn(const ProcessGrid& grid, int matrices,
                                const std::function<RuntimeOptions(int rank)>& options,
                                Layout layout = Layout::kReplicated) {
  std::vector<Committed> results(grid.size());
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model = ModelOf(rank.rank, matrices, grid.size(), layout);
    auto runtime = *Runtime::Create(options(rank.rank), rank.device, rank.transport);
    for (int m = 0; m < matrices; ++m) {
      ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, MuonOptions{})).ok());
    }
    Committed& result = results[rank.rank];
    EXPECT_FALSE(runtime->strategy_report());
    result.status = runtime->Commit();
    if (!result.status.ok()) return;
    result.report = runtime->strategy_report();
    result.strategy = runtime->plan().strategy;
    result.fingerprint = Fingerprint(runtime->plan());
  });
  return results;
}

std::vector<MatrixSpec> Specs(int matrices, int world, Layout layout = Layout::kReplicated) {
  RankModel model = ModelOf(0, matrices, world, layout);
  std::vector<MatrixSpec> specs;
  for (int m = 0; m < matrices; ++m) {
    specs.push_back(model.Spec(m, MuonOptions{}));
    specs.back().weight = nullptr;
  }
  return specs;
}

// Newton-Schulz that takes long beside what the links take, or no time.
RuntimeOptions Auto(const ProcessGrid& grid, double flops_per_second, Link inter) {
  RuntimeOptions options = OptionsFor(grid);
  options.auto_strategy.emplace();
  options.limits.exchange_bytes = 0;  // layerwise gains nothing over owner
  Topology linked = options.topology;
  linked.inter = inter;
  linked.intra = {1, 100};
  options.costs = std::make_shared<const CostModel>(
      linked, AnalyticRates{.flops_per_second = flops_per_second, .launch_seconds = 0});
  return options;
}

void ExpectEqual(const StrategyReport& a, const StrategyReport& b) {
  EXPECT_EQ(a.strategy, b.strategy);
  EXPECT_EQ(a.reason, b.reason);
  ASSERT_EQ(a.alternatives.size(), b.alternatives.size());
  for (std::size_t i = 0; i < a.alternatives.size(); ++i) {
    const StrategyAlternative &left = a.alternatives[i], &right = b.alternatives[i];
    EXPECT_EQ(left.strategy, right.strategy);
    EXPECT_EQ(left.infeasible, right.infeasible);
    EXPECT_EQ(left.step_seconds, right.step_seconds);
    EXPECT_EQ(left.exposed_seconds, right.exposed_seconds);
    EXPECT_EQ(left.peak_bytes, right.peak_bytes);
    EXPECT_EQ(left.bound, right.bound);
    EXPECT_EQ(left.fallbacks, right.fallbacks);
  }
}

// Which one it is depends on the costs; that it is the same on all ranks, and the plan that naming
// it makes, does not.
TEST(AutoStrategy, AllRanksHaveTheChoiceThatWasPredicted) {
  const ProcessGrid grid = {2, 2};
  struct Case {
    double flops_per_second;
    Link inter;
    Strategy expected;
  };
  for (const Case& each :
       {Case{1e8, {1, 100}, Strategy::kOwner}, Case{1e15, {1000, 0.01}, Strategy::kReplicated},
        Case{1e9, {3000, 100}, Strategy::kNodeLocal}}) {
    const RuntimeOptions options = Auto(grid, each.flops_per_second, each.inter);
    const auto choice = ChoiceFor(Specs(8, grid.size()), options);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->strategy, each.expected) << choice->reason;
    EXPECT_EQ(choice->alternatives.size(), AllStrategies().size());
    EXPECT_EQ(choice->alternatives[0].strategy, choice->strategy);
    RuntimeOptions named = options;
    named.auto_strategy.reset();
    named.strategy = choice->strategy;
    const std::uint64_t fingerprint = Fingerprint(*PlanFor(Specs(8, grid.size()), named));
    EXPECT_EQ(Fingerprint(*PlanFor(Specs(8, grid.size()), options)), fingerprint);
    for (const Committed& rank : CommitOn(grid, 8, [&](int) { return options; })) {
      ASSERT_TRUE(rank.status.ok()) << rank.status;
      ASSERT_TRUE(rank.report);
      ExpectEqual(*rank.report, *choice);
      EXPECT_EQ(rank.strategy, each.expected);
      EXPECT_EQ(rank.fingerprint, fingerprint);
    }
  }
}

// Measured times are never the same on two ranks, so that ranks may not choose by their own.
TEST(AutoStrategy, TheTrainerOfRankZeroDecides) {
  const ProcessGrid grid = {1, 2};
  const RuntimeOptions options = Auto(grid, 2e9, {});
  const auto with = [&](double seconds) {
    RuntimeOptions asked = options;
    asked.auto_strategy->forward_seconds.assign(4, seconds);
    asked.auto_strategy->backward_seconds.assign(4, 2 * seconds);
    return asked;
  };
  const auto first = ChoiceFor(Specs(4, 2), with(0.25)), second = ChoiceFor(Specs(4, 2), with(0.5));
  ASSERT_NE(first->alternatives[0].step_seconds, second->alternatives[0].step_seconds);
  for (const Committed& rank :
       CommitOn(grid, 4, [&](int r) { return with(r == 0 ? 0.25 : 0.5); })) {
    ASSERT_TRUE(rank.status.ok()) << rank.status;
    ExpectEqual(*rank.report, *first);
  }
  // Not even the form of the others' is looked at, and `strategy` on no rank.
  for (const Committed& rank : CommitOn(grid, 4, [&](int r) {
         RuntimeOptions asked = with(0.25);
         if (r == 1) asked.auto_strategy->forward_seconds = {-1};
         asked.strategy = r == 0 ? Strategy::kGather : Strategy::kReplicated;
         return asked;
       })) {
    ASSERT_TRUE(rank.status.ok()) << rank.status;
    ExpectEqual(*rank.report, *first);
  }
}

TEST(AutoStrategy, TrainsAsTheStrategyThatItChose) {
  const ProcessGrid grid = {2, 2};
  RuntimeOptions options = Auto(grid, 1e8, {1, 100});
  const Strategy chosen = ChoiceFor(Specs(5, 4), options)->strategy;
  const auto trained = [&] {
    std::vector<std::vector<std::vector<float>>> weights(grid.size());
    RunWorld({.grid = grid}, [&](testing::Rank rank) {
      RankModel model = ModelOf(rank.rank, 5, grid.size(), Layout::kReplicated);
      auto runtime = *Runtime::Create(options, rank.device, rank.transport);
      for (int m = 0; m < 5; ++m) {
        ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, MuonOptions{})).ok());
      }
      ASSERT_TRUE(runtime->Commit().ok());
      EXPECT_EQ(runtime->plan().strategy, chosen);
      for (int step = 0; step < 2; ++step) {
        std::vector<std::vector<float>> gradients;
        for (int m = 0; m < 5; ++m) gradients.push_back(model.Gradient(m, step));
        for (int m = 4; m >= 0; --m) {
          ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradients[m].data()}).ok());
        }
        ASSERT_TRUE(runtime->Step().ok());
        ASSERT_TRUE(runtime->WaitForStep().ok());
      }
      weights[rank.rank] = model.weights();
    });
    return weights;
  };
  const auto by_choice = trained();
  options.auto_strategy.reset();
  options.strategy = chosen;
  EXPECT_EQ(by_choice, trained());
  EXPECT_EQ(chosen, Strategy::kOwner);
  EXPECT_EQ(by_choice[0], by_choice[3]);
  EXPECT_NE(by_choice[0], ModelOf(0, 5, 4, Layout::kReplicated).weights());
}

TEST(AutoStrategy, SaysOnceWhatItChose) {
  std::vector<std::string> said;
  SetLogSink([&](LogLevel level, std::string_view sentence) {
    if (level == LogLevel::kInfo) said.emplace_back(sentence);
  });
  const RuntimeOptions options = Auto({1, 2}, 1e9, {});
  const auto ranks = CommitOn({1, 2}, 2, [&](int) { return options; });
  SetLogSink(nullptr);
  ASSERT_TRUE(ranks[0].report);
  EXPECT_THAT(said, ElementsAre("strategy auto: " + ranks[0].report->reason));
}

TEST(AutoStrategy, CapsMakeStrategiesInfeasible) {
  RuntimeOptions options = Auto({1, 2}, 1e15, {});
  options.costs = nullptr;
  options.topology.intra = {1000, 0.001};
  EXPECT_EQ(ChoiceFor(Specs(2, 2), options)->strategy, Strategy::kReplicated);
  options.ownership.state_bytes_cap = 4 * 32 * 32;
  for (const Committed& rank : CommitOn({1, 2}, 2, [&](int) { return options; })) {
    ASSERT_TRUE(rank.status.ok()) << rank.status;
    EXPECT_EQ(rank.strategy, Strategy::kOwner);
    EXPECT_THAT(rank.report->alternatives.back().infeasible,
                HasSubstr("more than the cap of 4096"));
  }
}

TEST(AutoStrategy, OneSentenceForBadInput) {
  const ProcessGrid grid = {1, 2};
  const auto message = [&](const std::function<void(RuntimeOptions&, int)>& change) {
    const auto ranks = CommitOn(grid, 4, [&](int r) {
      RuntimeOptions options = Auto(grid, 1e9, {});
      change(options, r);
      return options;
    });
    EXPECT_FALSE(ranks[0].status.ok());
    EXPECT_EQ(ranks[0].status, ranks[1].status);
    EXPECT_FALSE(ranks[0].report);
    return std::string(ranks[0].status.message());
  };
  EXPECT_EQ(message([](RuntimeOptions& o, int) {
              o.auto_strategy->forward_seconds = {1, 2, 3};
            }),
            "rank 0: the trainer's forward seconds are 3, the matrices 4.");
  EXPECT_EQ(
      message([](RuntimeOptions& o, int) {
        o.auto_strategy->backward_seconds = {1, 2, 3, std::numeric_limits<double>::infinity()};
      }),
      "rank 0: the trainer's backward seconds have inf; they must be finite and not "
      "negative.");
  EXPECT_THAT(message([](RuntimeOptions& o, int r) {
                if (r == 1) o.auto_strategy.reset();
              }),
              HasSubstr("rank 0 has strategy auto, rank 1 has owner"));
  EXPECT_THAT(message([](RuntimeOptions& o, int) { o.limits.buffer_bytes = 1; }),
              HasSubstr("rank 0: no strategy is feasible: "));
}

TEST(AutoStrategy, TheSwitchIsThatOfPlansOnSoManyNodes) {
  RuntimeOptions options = Auto({2, 2}, 1e10, {100, 100});
  options.pass_through = PassThrough::kNever;
  const std::vector<MatrixSpec> specs = Specs(12, 4, Layout::kSharded);
  const auto found = SwitchFor(specs, options, 16);
  ASSERT_TRUE(found.ok()) << found.status();
  for (const SwitchPoint& point : found->points) {
    RuntimeOptions there = options;
    there.auto_strategy.reset();
    there.owner_solver = OwnerSolver::kHeuristic;
    there.topology.grid.nodes = point.nodes;
    Topology linked = options.costs->topology();
    linked.grid.nodes = point.nodes;
    there.costs = std::make_shared<const CostModel>(options.costs->On(linked));
    for (const auto& [strategy, seconds] : {std::pair(Strategy::kOwner, point.owner_seconds),
                                            {Strategy::kNodeLocal, point.node_local_seconds}}) {
      there.strategy = strategy;
      const std::vector<MatrixSpec> here = Specs(12, there.topology.grid.size(), Layout::kSharded);
      const auto plan = PlanFor(here, there);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(EvaluatePlan(*plan, *there.costs, {}, *OwnedWorkOf(here))->step_seconds, seconds);
    }
  }
  EXPECT_THAT(std::string(SwitchFor(specs, options, 0).status().message()),
              HasSubstr("not up to 0"));
}

}  // namespace
}  // namespace weft
