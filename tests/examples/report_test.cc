#include "train_gpt/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace train_gpt {
namespace {

using ::testing::HasSubstr;

RankResult Rank(std::vector<double> losses, std::vector<Evaluation> evaluations,
                std::vector<double> optimizer_seconds) {
  RankResult rank;
  rank.losses = std::move(losses);
  rank.evaluations = std::move(evaluations);
  for (const double seconds : optimizer_seconds) {
    weft::StepMetrics metrics;
    metrics.step = static_cast<std::int64_t>(rank.metrics.size());
    metrics.last_delivered = static_cast<weft::Nanos>(seconds * 1e9);  // step_called is 0
    rank.metrics.push_back(metrics);
  }
  return rank;
}

// Every claim holds.
Comparison Good() {
  Comparison comparison;
  comparison.adamw.ranks = {Rank({4, 3, 2}, {{0, 4.0}, {2, 3.0}, {3, 2.5}}, {1, 1, 1})};
  comparison.replicated.ranks = {Rank({4, 2, 1}, {{0, 4.0}, {2, 2.4}, {3, 2.0}}, {9, 9, 9})};
  comparison.gather.ranks = comparison.replicated.ranks;
  comparison.owner.ranks = {Rank({4, 2, 1}, {{0, 4.0}, {2, 2.4}, {3, 2.0}}, {3, 3, 3})};
  comparison.periodic.ranks = {Rank({4, 2, 1}, {{0, 4.0}, {2, 2.4}, {3, 2.01}}, {1, 3, 1})};
  return comparison;
}

std::vector<bool> Holds(const Comparison& comparison) {
  std::vector<bool> holds;
  for (const Claim& claim : Judge(comparison)) holds.push_back(claim.holds);
  return holds;
}

TEST(Summarize, AveragesLossesOverRanksAndTakesTheSlowestRankPerStep) {
  std::vector<RankResult> ranks = {Rank({4, 2}, {{0, 5}, {2, 3}}, {1, 8, 2}),
                                   Rank({2, 1}, {{0, 3}, {2, 1}}, {3, 1, 4})};
  ranks[0].step_seconds = {1, 5, 2};
  ranks[1].step_seconds = {2, 1, 9};
  ranks[1].metrics[0].lane_bytes = {0, 7, 5};
  ranks[1].metrics[1].lane_bytes = {0, 7, 5};
  const Summary summary = Summarize(ranks);
  EXPECT_EQ(summary.losses, (std::vector<double>{3, 1.5}));
  EXPECT_EQ(summary.final_loss(), 2);
  EXPECT_EQ(summary.evaluations[1].step, 2);
  EXPECT_EQ(summary.step_seconds, 5);       // median of 2, 5, 9
  EXPECT_EQ(summary.optimizer_seconds, 4);  // median of 3, 8, 4
  EXPECT_EQ(summary.intra_bytes, 7);
  EXPECT_EQ(summary.inter_bytes, 5);
}

TEST(Summarize, HasNoStepTimeWhenNoStepWasTimed) {
  EXPECT_EQ(Summarize({Rank({4}, {{1, 4}}, {1})}).step_seconds, std::nullopt);
}

TEST(LargestRelativeDifference, IsInfiniteForWhatCannotBeCompared) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(LargestRelativeDifference({1, 2, 4}, {1, 2, 5}), 0.2);
  EXPECT_EQ(LargestRelativeDifference({1, 2}, {1, 2}), 0);
  EXPECT_EQ(LargestRelativeDifference({1}, {1, 2}), kInfinite);
  EXPECT_EQ(LargestRelativeDifference({kNan}, {kNan}), kInfinite);
  EXPECT_EQ(LargestRelativeDifference({1}, {0}), kInfinite);
}

TEST(StepsToReach, IsTheFirstEvaluationAtOrBelow) {
  const std::vector<Evaluation> evaluations = {{0, 4}, {10, 2}, {20, 3}, {30, 1}};
  EXPECT_EQ(StepsToReach(evaluations, 2), 10);
  EXPECT_EQ(StepsToReach(evaluations, 1.5), 30);
  EXPECT_EQ(StepsToReach(evaluations, 0.5), std::nullopt);
}

TEST(Judge, AcceptsAGoodComparison) {
  EXPECT_EQ(Holds(Good()), (std::vector<bool>{true, true, true, true, true}));
}

TEST(Judge, RejectsLossesThatDrift) {
  Comparison comparison = Good();
  comparison.owner.ranks[0].losses[1] *= 1 + 2e-5;
  EXPECT_EQ(Holds(comparison), (std::vector<bool>{false, true, true, true, true}));
  comparison.owner.ranks[0].losses[1] = 2 * (1 + 5e-6);
  EXPECT_EQ(Holds(comparison), (std::vector<bool>{true, true, true, true, true}));
}

TEST(Judge, RejectsMuonThatIsNoFaster) {
  Comparison comparison = Good();
  comparison.gather.ranks[0].evaluations = {{0, 4.0}, {2, 2.6}, {3, 2.5}};  // as late as AdamW
  // Never.
  comparison.owner.ranks[0].evaluations = {{0, 4.0}, {2, 2.6}, {3, 2.6}};
  EXPECT_EQ(Holds(comparison), (std::vector<bool>{true, true, false, false, true}));
  EXPECT_THAT(Judge(comparison)[3].sentence, HasSubstr("more than all"));
}

TEST(Judge, RejectsAnOwnerThatIsNotFastEnough) {
  Comparison comparison = Good();
  for (auto& metrics : comparison.owner.ranks[0].metrics) metrics.last_delivered = 3'700'000'000;
  EXPECT_EQ(Holds(comparison), (std::vector<bool>{true, true, true, true, false}));
  EXPECT_THAT(Judge(comparison)[4].sentence, HasSubstr("2.43 times faster"));
}

TEST(Table, SaysWhenTheGoalWasReached) {
  Comparison comparison = Good();
  comparison.adamw.name = "first";
  comparison.owner.name = "second";
  const std::string table = Table({&comparison.adamw, &comparison.owner}, 2.45);
  EXPECT_THAT(table, HasSubstr("first"));
  EXPECT_THAT(table, HasSubstr("never"));
  EXPECT_THAT(table, HasSubstr("3000.0"));
}

}  // namespace
}  // namespace train_gpt
