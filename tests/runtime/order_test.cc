// Results depend on what is submitted, never on when.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>

#include "tests/support/commit.h"
#include "tests/support/model.h"
#include "tests/support/seed.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using testing::RankModel;
using testing::RunWorld;

const std::vector<testing::Shape> kShapes = {{16, 24}, {24, 16}, {16, 16}, {8, 40}, {5, 3}};

// Weights by rank after `steps` steps; each rank submits in an order of its own drawn from `order`,
// or in backward order when `order` is 0.
std::vector<std::vector<std::vector<float>>> Train(const ProcessGrid& grid, Strategy strategy,
                                                   Layout layout, int steps, std::uint64_t order) {
  std::vector<std::vector<std::vector<float>>> weights(grid.size());
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(kShapes, layout, GradientKind::kLocal, rank.rank, grid.size(), 11);
    auto runtime =
        Runtime::Create(testing::OptionsFor(grid, strategy), rank.device, rank.transport);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    for (std::size_t m = 0; m < model.size(); ++m) {
      ASSERT_TRUE((*runtime)->AddMatrix(model.Spec(m, MuonOptions{})).ok());
    }
    ASSERT_TRUE((*runtime)->Commit().ok());
    std::mt19937_64 engine(order * 1000003 + rank.rank);
    for (int step = 0; step < steps; ++step) {
      std::vector<int> ids(model.size());
      std::iota(ids.rbegin(), ids.rend(), 0);
      if (order != 0) std::shuffle(ids.begin(), ids.end(), engine);
      for (const int m : ids) {
        const std::vector<float> gradient = model.Gradient(m, step);
        const auto job = (*runtime)->Submit({.matrix = m, .gradient = gradient.data()});
        ASSERT_TRUE(job.ok()) << job.status();
      }
      ASSERT_TRUE((*runtime)->Step().ok());
    }
    const absl::Status done = (*runtime)->WaitForStep();
    ASSERT_TRUE(done.ok()) << done;
    weights[rank.rank] = model.weights();
  });
  return weights;
}

TEST(ArrivalOrder, FiftyRandomOrdersGiveEqualBits) {
  const ProcessGrid grid{2, 2};
  const auto expected = Train(grid, Strategy::kOwner, Layout::kReplicated, 2, 0);
  for (int order = 1; order <= 50; ++order) {
    const std::uint64_t seed = testing::Seed() + order;
    ASSERT_EQ(Train(grid, Strategy::kOwner, Layout::kReplicated, 2, seed), expected)
        << "order seed " << seed;
  }
}

// Case 18: groups {0,1}, {2,3} (nodes) and {0,2}, {1,3} (inter), ten steps and more.
TEST(ArrivalOrder, EveryStrategyAgreesOverTwelveSteps) {
  const ProcessGrid grid{2, 2};
  for (const auto& [strategy, layout] : {std::pair{Strategy::kReplicated, Layout::kReplicated},
                                         std::pair{Strategy::kGather, Layout::kSharded},
                                         std::pair{Strategy::kOwner, Layout::kSharded},
                                         std::pair{Strategy::kOwner, Layout::kReplicated}}) {
    const auto expected = Train(grid, strategy, layout, 12, 0);
    const std::uint64_t seed = testing::Seed() + 99;
    EXPECT_EQ(Train(grid, strategy, layout, 12, seed), expected)
        << Name(strategy) << " " << Name(layout) << ", order seed " << seed;
  }
}

// A device may hold a collective back until the one launched before it is over, whatever their
// communicators: two ranks that launch a pair of them in different orders would wait for each
// other.
TEST(ArrivalOrder, CollectivesOfAllLanesAreIssuedInOneOrderOnEveryRank) {
  const ProcessGrid grid{2, 2};
  const std::uint64_t seed = testing::Seed();
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, grid.size(), 11);
    const auto runtime = testing::Commit(testing::OptionsFor(grid), rank, model);
    std::mt19937_64 engine(seed + rank.rank);
    for (int step = 0; step < 10; ++step) {
      std::vector<int> ids(model.size());
      std::iota(ids.begin(), ids.end(), 0);
      std::shuffle(ids.begin(), ids.end(), engine);
      for (const int m : ids) {
        const std::vector<float> gradient = model.Gradient(m, step);
        ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
      }
      ASSERT_TRUE(runtime->Step().ok());
    }
    ASSERT_TRUE(runtime->WaitForStep().ok());
    std::pair<std::int64_t, std::int32_t> last{-1, -1};
    int issued = 0;
    for (const Decision& decision : runtime->Decisions()) {
      if (decision.what != Decision::What::kIssued || decision.lane == Lane::kCompute) continue;
      const std::pair next{decision.step, decision.op};
      EXPECT_LT(last, next) << "rank " << rank.rank << ", order seed " << seed;
      last = next;
      ++issued;
    }
    EXPECT_GT(issued, 50);
  });
}

TEST(ArrivalOrder, ReplicatedWeightsAreEqualOnAllRanks) {
  const auto weights = Train({2, 2}, Strategy::kOwner, Layout::kReplicated, 3, testing::Seed());
  for (const auto& rank : weights) EXPECT_EQ(rank, weights[0]);
}

}  // namespace
}  // namespace weft
