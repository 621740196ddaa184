// Every way that a plan can take, with a trainer on a stream.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/cuda/stream_trainer.h"
#include "tests/support/seed.h"

namespace weft {
namespace {

using testing::Scenario;
using testing::WeightsByRank;

constexpr int kSteps = 4;

void ExpectClose(const WeightsByRank& weights, const WeightsByRank& expected) {
  ASSERT_EQ(weights.size(), expected.size());
  for (std::size_t rank = 0; rank < weights.size(); ++rank) {
    for (std::size_t m = 0; m < weights[rank].size(); ++m) {
      ASSERT_EQ(weights[rank][m].size(), expected[rank][m].size());
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < weights[rank][m].size(); ++i) {
        error += std::pow(weights[rank][m][i] - expected[rank][m][i], 2);
        norm += std::pow(expected[rank][m][i], 2);
      }
      EXPECT_LE(std::sqrt(error), 3e-5 * std::sqrt(norm)) << "rank " << rank << ", matrix " << m;
    }
  }
}

class OnStreams : public ::testing::TestWithParam<Scenario> {};

TEST_P(OnStreams, EqualsTheHost) {
  const WeightsByRank expected = TrainOnStreams(GetParam(), kSteps, testing::RunLocalWorld);
  ExpectClose(TrainOnStreams(GetParam(), kSteps), expected);
}

class InAnyOrder : public OnStreams {};

TEST_P(InAnyOrder, EqualsBackwardOrder) {
  const WeightsByRank expected = TrainOnStreams(GetParam(), kSteps);
  Scenario shuffled = GetParam();
  shuffled.order = testing::Seed();
  EXPECT_EQ(TrainOnStreams(shuffled, kSteps), expected) << "order seed " << shuffled.order;
}

std::string NameOf(const ::testing::TestParamInfo<Scenario>& tested) { return tested.param.name; }

// Those whose gradients do not have to follow the use of their layer's weights.
std::vector<Scenario> Unordered() {
  std::vector<Scenario> all = testing::Scenarios();
  std::erase_if(all, [](const Scenario& each) { return each.layout == Layout::kOwned; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, OnStreams, ::testing::ValuesIn(testing::Scenarios()), NameOf);
INSTANTIATE_TEST_SUITE_P(Ways, InAnyOrder, ::testing::ValuesIn(Unordered()), NameOf);

}  // namespace
}  // namespace weft
