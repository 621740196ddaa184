#include "train_gpt/data.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace train_gpt {
namespace {

// Every window of it is different: the positions are spelled out in two letters.
std::string Positions(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += static_cast<char>('a' + i / 26 % 26);
    text += static_cast<char>('A' + i % 26);
  }
  return text;
}

std::vector<std::vector<std::int32_t>> Sequences(const Batch& batch, int context) {
  std::vector<std::vector<std::int32_t>> sequences;
  for (auto at = batch.tokens.begin(); at != batch.tokens.end(); at += context) {
    sequences.emplace_back(at, at + context);
  }
  return sequences;
}

TEST(Corpus, TargetsAreTheNextCharacters) {
  const Corpus corpus("abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", 5);
  ASSERT_EQ(corpus.error(), "");
  EXPECT_EQ(corpus.vocabulary(), 26);
  const Batch batch = corpus.Training(1, 0, {.rank = 0, .ranks = 1, .sequences = 4});
  ASSERT_EQ(batch.tokens.size(), 20u);
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    EXPECT_EQ(batch.targets[i], (batch.tokens[i] + 1) % 26);
  }
}

RC_GTEST_PROP(Corpus, RanksShareNoWindowAndTogetherEqualOneRank, ()) {
  const int context = *rc::gen::inRange(2, 9);
  const int ranks = *rc::gen::inRange(1, 6);
  const int sequences = *rc::gen::inRange(1, 4);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const int step = *rc::gen::inRange(0, 100);
  const Corpus corpus(Positions(300), context);
  const Batch whole = corpus.Training(seed, step, {0, 1, ranks * sequences});

  Batch together;
  std::set<std::vector<std::int32_t>> distinct;
  for (int rank = 0; rank < ranks; ++rank) {
    const Batch batch = corpus.Training(seed, step, {rank, ranks, sequences});
    together.tokens.insert(together.tokens.end(), batch.tokens.begin(), batch.tokens.end());
    together.targets.insert(together.targets.end(), batch.targets.begin(), batch.targets.end());
    for (const auto& sequence : Sequences(batch, context)) distinct.insert(sequence);
  }
  RC_ASSERT(together.tokens == whole.tokens);
  RC_ASSERT(together.targets == whole.targets);
  RC_ASSERT(distinct.size() == static_cast<std::size_t>(ranks * sequences));
}

TEST(Corpus, AnEpochUsesEveryTrainingWindowOnceAndNoneThatIsHeldOut) {
  constexpr int kContext = 4;
  const Corpus corpus(Positions(200), kContext);
  std::set<std::vector<std::int32_t>> used;
  for (int step = 0; step < corpus.training_windows(); ++step) {
    for (const auto& sequence : Sequences(corpus.Training(9, step, {0, 1, 1}), kContext)) {
      EXPECT_TRUE(used.insert(sequence).second);
    }
  }
  const int held_out = static_cast<int>(corpus.held_out_windows());
  std::set<std::vector<std::int32_t>> kept;
  for (const auto& sequence : Sequences(corpus.HeldOut({0, 1, held_out}), kContext)) {
    EXPECT_FALSE(used.contains(sequence));
    EXPECT_TRUE(kept.insert(sequence).second);
  }
}

TEST(Corpus, HeldOutSharesPartitionWhatOneRankSees) {
  const Corpus corpus(Positions(300), 3);
  const Batch whole = corpus.HeldOut({0, 1, 12});
  std::vector<std::int32_t> together;
  for (int rank = 0; rank < 4; ++rank) {
    const Batch part = corpus.HeldOut({rank, 4, 3});
    together.insert(together.end(), part.tokens.begin(), part.tokens.end());
  }
  EXPECT_EQ(together, whole.tokens);
}

TEST(Corpus, SeedAndStepDecideTheBatch) {
  const Corpus corpus(Positions(300), 4);
  const Share share = {1, 2, 3};
  EXPECT_EQ(corpus.Training(1, 2, share).tokens, corpus.Training(1, 2, share).tokens);
  EXPECT_NE(corpus.Training(1, 2, share).tokens, corpus.Training(1, 3, share).tokens);
  EXPECT_NE(corpus.Training(1, 2, share).tokens, corpus.Training(2, 2, share).tokens);
}

TEST(Corpus, SaysHowMuchTextItNeeds) {
  EXPECT_EQ(Corpus("", 8).error(), "the text has 0 characters; a context of 8 needs at least 81");
  EXPECT_NE(Corpus(std::string(80, 'x'), 8).error(), "");
  EXPECT_EQ(Corpus(std::string(81, 'x'), 8).error(), "");
}

}  // namespace
}  // namespace train_gpt
