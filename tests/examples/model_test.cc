#include "train_gpt/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace train_gpt {
namespace {

void NoWait(int) {}

struct Example {
  std::vector<std::int32_t> tokens, targets;
};

Example RandomExample(const GptConfig& config, int batch, std::mt19937_64& random) {
  std::uniform_int_distribution<std::int32_t> character(0, config.vocabulary - 1);
  Example example;
  for (int i = 0; i < batch * config.context; ++i) {
    example.tokens.push_back(character(random));
    example.targets.push_back(character(random));
  }
  return example;
}

constexpr GptConfig kSmall = {.vocabulary = 7, .context = 5, .width = 6, .blocks = 2, .heads = 3};

// Central differences in double of every element of every parameter. Weights are drawn large, so
// that attention is far from uniform and no gradient is small by accident.
TEST(Gpt, GradientEqualsFiniteDifferences) {
  constexpr int kBatch = 2;
  constexpr double kStep = 1e-5;
  std::mt19937_64 random(weft::testing::Seed());
  std::normal_distribution<double> normal;
  Gpt<double> gpt(kSmall, kBatch);
  for (int p = 0; p < static_cast<int>(gpt.parameters().size()); ++p) {
    for (double& weight : gpt.weight(p)) weight = 0.7 * normal(random);
  }
  const Example example = RandomExample(kSmall, kBatch, random);
  const auto loss = [&] { return gpt.Forward(example.tokens, example.targets, kBatch, NoWait); };
  loss();
  gpt.Backward([](int) {});
  std::vector<std::vector<double>> gradients;
  for (int p = 0; p < static_cast<int>(gpt.parameters().size()); ++p) {
    gradients.emplace_back(gpt.gradient(p).begin(), gpt.gradient(p).end());
  }

  for (int p = 0; p < static_cast<int>(gpt.parameters().size()); ++p) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < gradients[p].size(); ++i) {
      double& weight = gpt.weight(p)[i];
      const double kept = weight;
      weight = kept + kStep;
      const double above = loss();
      weight = kept - kStep;
      const double below = loss();
      weight = kept;
      const double numeric = (above - below) / (2 * kStep);
      difference += (numeric - gradients[p][i]) * (numeric - gradients[p][i]);
      norm += numeric * numeric;
    }
    ASSERT_GT(norm, 1e-12) << gpt.parameters()[p].name << " has no influence on the loss";
    EXPECT_LT(std::sqrt(difference / norm), 1e-5) << gpt.parameters()[p].name;
  }
}

TEST(Gpt, FloatAgreesWithDouble) {
  constexpr int kBatch = 3;
  const GptConfig config = {.vocabulary = 11, .context = 9, .width = 24, .blocks = 2, .heads = 4};
  std::mt19937_64 random(weft::testing::Seed());
  const Example example = RandomExample(config, kBatch, random);
  Gpt<float> single(config, kBatch);
  Gpt<double> reference(config, kBatch);
  single.Initialize(weft::testing::Seed());
  for (int p = 0; p < static_cast<int>(single.parameters().size()); ++p) {
    std::ranges::copy(single.weight(p), reference.weight(p).begin());
  }
  const double loss = single.Forward(example.tokens, example.targets, kBatch, NoWait);
  const double expected = reference.Forward(example.tokens, example.targets, kBatch, NoWait);
  EXPECT_NEAR(loss, expected, 1e-5 * expected);
  single.Backward([](int) {});
  reference.Backward([](int) {});
  for (int p = 0; p < static_cast<int>(single.parameters().size()); ++p) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < single.gradient(p).size(); ++i) {
      const double exact = reference.gradient(p)[i];
      difference += std::pow(static_cast<double>(single.gradient(p)[i]) - exact, 2);
      norm += exact * exact;
    }
    EXPECT_LT(std::sqrt(difference / norm), 1e-4) << single.parameters()[p].name;
  }
}

TEST(Gpt, InitialLossIsThatOfGuessing) {
  const GptConfig config = {.vocabulary = 65, .context = 32, .width = 64, .blocks = 3, .heads = 4};
  std::mt19937_64 random(weft::testing::Seed());
  Gpt<float> gpt(config, 4);
  gpt.Initialize(weft::testing::Seed());
  const Example example = RandomExample(config, 4, random);
  // Logits of variance width * 0.02^2 = 0.026 add half of that to log(vocabulary).
  EXPECT_NEAR(gpt.Forward(example.tokens, example.targets, 4, NoWait), std::log(65.0), 0.1);
}

TEST(Gpt, EqualSeedsGiveEqualBits) {
  std::mt19937_64 random(weft::testing::Seed());
  const Example example = RandomExample(kSmall, 2, random);
  Gpt<float> a(kSmall, 2), b(kSmall, 4), other(kSmall, 2);
  a.Initialize(5);
  b.Initialize(5);
  other.Initialize(6);
  const double loss = a.Forward(example.tokens, example.targets, 2, NoWait);
  EXPECT_EQ(loss, b.Forward(example.tokens, example.targets, 2, NoWait));
  EXPECT_NE(loss, other.Forward(example.tokens, example.targets, 2, NoWait));
  a.Backward([](int) {});
  b.Backward([](int) {});
  for (int p = 0; p < static_cast<int>(a.parameters().size()); ++p) {
    EXPECT_TRUE(std::ranges::equal(a.gradient(p), b.gradient(p))) << a.parameters()[p].name;
  }
}

// With n positions and the last target swept over the vocabulary, the losses L_c satisfy
// sum over c of exp(-n L_c) = product of the probabilities of the earlier targets, because the last
// position's probabilities sum to one. That product must not depend on the last token.
TEST(Gpt, SeesNoLaterToken) {
  std::mt19937_64 random(weft::testing::Seed());
  Gpt<double> gpt(kSmall, 1);
  gpt.Initialize(weft::testing::Seed());
  Example example = RandomExample(kSmall, 1, random);
  const int last = kSmall.context - 1;
  const auto earlier_product = [&] {
    double product = 0;
    for (std::int32_t c = 0; c < kSmall.vocabulary; ++c) {
      example.targets[last] = c;
      const double loss = gpt.Forward(example.tokens, example.targets, 1, NoWait);
      product += std::exp(-kSmall.context * loss);
    }
    return product;
  };
  const double before = earlier_product();
  example.tokens[last] = (example.tokens[last] + 1) % kSmall.vocabulary;
  EXPECT_NEAR(earlier_product(), before, 1e-12 * before);
  example.tokens[0] = (example.tokens[0] + 1) % kSmall.vocabulary;
  EXPECT_GT(std::abs(earlier_product() - before), 1e-9 * before);
}

TEST(Gpt, HooksFollowTheOrderOfUse) {
  std::mt19937_64 random(weft::testing::Seed());
  Gpt<float> gpt(kSmall, 1);
  gpt.Initialize(1);
  const Example example = RandomExample(kSmall, 1, random);
  std::vector<int> layers;
  gpt.Forward(example.tokens, example.targets, 1, [&](int layer) { layers.push_back(layer); });
  std::vector<int> expected(LayerCount(kSmall));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(layers, expected);

  std::vector<int> completed;
  int last_layer = LayerCount(kSmall);
  gpt.Backward([&](int p) {
    completed.push_back(p);
    EXPECT_LE(gpt.parameters()[p].layer, last_layer);
    last_layer = gpt.parameters()[p].layer;
  });
  std::ranges::sort(completed);
  std::vector<int> all(gpt.parameters().size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(completed, all);
}

TEST(Gpt, GradientIsCompleteWhenTheHookSaysSo) {
  std::mt19937_64 random(weft::testing::Seed());
  Gpt<float> gpt(kSmall, 2);
  gpt.Initialize(3);
  const Example example = RandomExample(kSmall, 2, random);
  std::vector<std::vector<float>> seen(gpt.parameters().size());
  gpt.Forward(example.tokens, example.targets, 2, NoWait);
  gpt.Backward([&](int p) { seen[p].assign(gpt.gradient(p).begin(), gpt.gradient(p).end()); });
  for (int p = 0; p < static_cast<int>(seen.size()); ++p) {
    EXPECT_TRUE(std::ranges::equal(seen[p], gpt.gradient(p))) << gpt.parameters()[p].name;
  }
}

TEST(Gpt, ReadsALayersWeightsOnlyAfterItsHook) {
  std::mt19937_64 random(weft::testing::Seed());
  const Example example = RandomExample(kSmall, 2, random);
  Gpt<float> ready(kSmall, 2), late(kSmall, 2);
  ready.Initialize(3);
  const double expected = ready.Forward(example.tokens, example.targets, 2, NoWait);
  const auto fill = [&](int layer) {
    for (int p = 0; p < static_cast<int>(late.parameters().size()); ++p) {
      if (late.parameters()[p].layer == layer) {
        std::ranges::copy(ready.weight(p), late.weight(p).begin());
      }
    }
  };
  EXPECT_EQ(late.Forward(example.tokens, example.targets, 2, fill), expected);
}

}  // namespace
}  // namespace train_gpt
