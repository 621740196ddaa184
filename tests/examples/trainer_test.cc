// Real training runs, small enough for a test: what the number of ranks, the strategy and the
// layout may not change.
#include "train_gpt/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/seed.h"
#include "train_gpt/report.h"

namespace train_gpt {
namespace {

using ::testing::HasSubstr;
using weft::Layout;
using weft::Strategy;

// Text with something to learn: words drawn from a small set.
std::string Text() {
  std::mt19937_64 random(weft::testing::Seed());
  const std::vector<std::string> words = {"warp ", "weft ", "loom ", "shuttle ", "thread "};
  std::string text;
  while (text.size() < 6000) text += words[random() % words.size()];
  return text;
}

const Corpus& TestCorpus() {
  static const Corpus& corpus = *new Corpus(Text(), 16);
  return corpus;
}

TrainerOptions Small(int nodes, int ranks_per_node) {
  TrainerOptions options;
  options.model = {
      .vocabulary = TestCorpus().vocabulary(), .context = 16, .width = 24, .blocks = 2, .heads = 2};
  options.topology.grid = {nodes, ranks_per_node};
  options.batch_per_rank = 8 / (nodes * ranks_per_node);
  options.evaluation_sequences = 8 / (nodes * ranks_per_node);
  options.steps = 8;
  options.warmup_steps = 2;
  options.evaluate_every = 4;
  options.seed = 7;
  return options;
}

Summary Train(const TrainerOptions& options) {
  auto ranks = TrainLocally(options, TestCorpus());
  EXPECT_TRUE(ranks.ok()) << ranks.status();
  return ranks.ok() ? Summarize(*ranks) : Summary{};
}

struct Case {
  Optimizer optimizer;
  Strategy strategy;
  Layout layout;
};

class TrainerTest : public ::testing::TestWithParam<Case> {};

// Only the order in which gradients are summed differs, so the runs part by rounding alone.
TEST_P(TrainerTest, FourRanksTrainAsOne) {
  TrainerOptions one = Small(1, 1), four = Small(2, 2);
  one.optimizer = four.optimizer = GetParam().optimizer;
  one.strategy = Strategy::kReplicated;
  four.strategy = GetParam().strategy;
  four.layout = GetParam().layout;
  const Summary expected = Train(one), actual = Train(four);
  ASSERT_EQ(expected.losses.size(), 8u);
  EXPECT_LT(LargestRelativeDifference(actual.losses, expected.losses), 1e-4);
  ASSERT_EQ(actual.evaluations.size(), 3u);
  EXPECT_EQ(actual.evaluations[2].step, 8);
  EXPECT_NEAR(actual.final_loss(), expected.final_loss(), 1e-4 * expected.final_loss());
  EXPECT_LT(actual.final_loss(), actual.evaluations[0].loss);
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainerTest,
    ::testing::Values(Case{Optimizer::kAdamW, Strategy::kReplicated, Layout::kReplicated},
                      Case{Optimizer::kMuon, Strategy::kReplicated, Layout::kReplicated},
                      Case{Optimizer::kMuon, Strategy::kGather, Layout::kSharded},
                      Case{Optimizer::kMuon, Strategy::kOwner, Layout::kReplicated},
                      Case{Optimizer::kMuon, Strategy::kOwner, Layout::kSharded}),
    [](const ::testing::TestParamInfo<Case>& tested) {
      return std::string(tested.param.optimizer == Optimizer::kMuon ? "muon_" : "adamw_") +
             std::string(weft::Name(tested.param.strategy)) + "_" +
             std::string(weft::Name(tested.param.layout));
    });

TEST(Trainer, ThreeRanksWithUnevenShardsTrainAsOne) {
  TrainerOptions one = Small(1, 1), three = Small(1, 3);
  one.batch_per_rank = one.evaluation_sequences = 6;
  three.batch_per_rank = three.evaluation_sequences = 2;
  three.layout = Layout::kSharded;
  EXPECT_LT(LargestRelativeDifference(Train(three).losses, Train(one).losses), 1e-4);
}

TEST(Trainer, RunsNewtonSchulzOncePerHiddenMatrixAndStepUnderOwner) {
  const TrainerOptions options = Small(2, 2);
  auto ranks = TrainLocally(options, TestCorpus());
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const std::vector<Parameter> parameters = GptParameters(options.model);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    std::int64_t runs = 0;
    for (const RankResult& rank : *ranks) {
      ASSERT_EQ(rank.counters.size(), parameters.size());
      EXPECT_EQ(rank.counters[p].name, parameters[p].name);
      runs += rank.counters[p].ns_runs;
    }
    EXPECT_EQ(runs, parameters[p].hidden ? options.steps : 0) << parameters[p].name;
  }
  for (const RankResult& rank : *ranks) {
    EXPECT_EQ(rank.metrics.size(), static_cast<std::size_t>(options.steps));
  }
}

// A rank that cannot start must not leave the others waiting.
TEST(Trainer, AFailingRankEndsItsPeers) {
  TrainerOptions good = Small(1, 2), bad = Small(1, 2);
  bad.muon.momentum = -1;
  weft::LocalTransportOptions transport_options;
  transport_options.topology = good.topology;
  auto transports = weft::CreateLocalTransports(transport_options);
  ASSERT_TRUE(transports.ok());
  std::vector<absl::Status> outcomes(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto device = weft::CreateHostDevice();
      if (!device.ok()) {
        outcomes[rank] = device.status();
        return;
      }
      outcomes[rank] =
          TrainRank(rank == 1 ? bad : good, TestCorpus(), **device, *(*transports)[rank]).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(std::string(outcomes[1].message()), HasSubstr("momentum"));
  EXPECT_THAT(std::string(outcomes[0].message()), HasSubstr("momentum"));
}

}  // namespace
}  // namespace train_gpt
