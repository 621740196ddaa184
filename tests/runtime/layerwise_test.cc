// Strategy layerwise against strategy owner: the same sums by other collectives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/commit.h"
#include "tests/support/model.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using testing::RankModel;
using testing::Shape;

// Matrices for several exchanges of several owners, an empty one and one with fewer rows than
// ranks.
const std::vector<Shape> kShapes = {{24, 16}, {16, 24}, {16, 16}, {0, 4},
                                    {2, 9},   {40, 8},  {12, 12}};
const std::vector<std::int32_t> kOwners = {3, 1, 1, 0, 3, 0, 1};
constexpr std::int64_t kExchangeBytes = 2600;

struct Way {
  Layout layout;
  GradientKind gradient;
};
const Way kWays[] = {{Layout::kReplicated, GradientKind::kLocal},
                     {Layout::kReplicated, GradientKind::kReduced},
                     {Layout::kSharded, GradientKind::kLocal},
                     {Layout::kSharded, GradientKind::kReduced}};

// By rank and matrix, after three steps.
using Weights = std::vector<std::vector<std::vector<float>>>;
Weights Train(const ProcessGrid& grid, Strategy strategy, const Way& way, int passes = 1) {
  Weights weights(grid.size());
  testing::RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(kShapes, way.layout, way.gradient, rank.rank, grid.size(), 5);
    RuntimeOptions options = testing::OptionsFor(grid, strategy);
    options.ownership.owners = kOwners;
    options.pass_through = PassThrough::kNever;
    options.limits.bucket_bytes = 0;
    options.limits.exchange_bytes = kExchangeBytes;
    options.limits.passes = passes;
    options.limits.reduce_each_pass = passes > 1;
    auto runtime = *Runtime::Create(options, rank.device, rank.transport);
    for (std::size_t m = 0; m < model.size(); ++m) {
      ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, MuonOptions{.lr = 0.05})).ok());
    }
    const absl::Status committed = runtime->Commit();
    ASSERT_TRUE(committed.ok()) << committed;
    const int jobs = way.gradient == GradientKind::kLocal ? passes : 1;
    for (int step = 0; step < 3; ++step) {
      for (int pass = 0; pass < jobs; ++pass) {
        for (int m = static_cast<int>(model.size()) - 1; m >= 0; --m) {
          const std::vector<float> gradient = model.Gradient(m, step * jobs + pass);
          const auto job =
              runtime->Submit({.matrix = m, .gradient = gradient.data(), .more = pass + 1 < jobs});
          ASSERT_TRUE(job.ok()) << job.status();
        }
      }
      ASSERT_TRUE(runtime->Step().ok());
    }
    ASSERT_TRUE(runtime->WaitForStep().ok());
    for (std::size_t m = 0; m < model.size(); ++m) weights[rank.rank].push_back(model.weight(m));
  });
  return weights;
}

// Sums are formed in the order of the ranks, whichever collective forms them.
TEST(Layerwise, EqualsOwnerBitForBitOnGridsOfOneLevel) {
  for (const ProcessGrid& grid : {ProcessGrid{1, 4}, ProcessGrid{4, 1}}) {
    for (const Way& way : kWays) {
      SCOPED_TRACE(std::string(Name(way.layout)) + ", " + std::string(Name(way.gradient)));
      const Weights owner = Train(grid, Strategy::kOwner, way);
      ASSERT_EQ(owner[0].size(), kShapes.size());
      EXPECT_EQ(Train(grid, Strategy::kLayerwise, way), owner);
    }
  }
}

// Two levels sum up by nodes first; without a sum there is nothing that could differ, and with one
// the grid alone decides.
TEST(Layerwise, OnGridsOfTwoLevelsSumsAreThoseOfOneLevel) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(std::string(Name(way.layout)) + ", " + std::string(Name(way.gradient)));
    const Weights two_levels = Train({2, 2}, Strategy::kLayerwise, way);
    EXPECT_EQ(two_levels, Train({1, 4}, Strategy::kOwner, way));
    if (way.gradient == GradientKind::kLocal) continue;
    EXPECT_EQ(two_levels, Train({2, 2}, Strategy::kOwner, way));
  }
}

TEST(Layerwise, EqualsOwnerWhereEachPassIsReduced) {
  for (const Way& way : kWays) {
    if (way.gradient != GradientKind::kLocal) continue;
    EXPECT_EQ(Train({1, 4}, Strategy::kLayerwise, way, 3), Train({1, 4}, Strategy::kOwner, way, 3));
  }
}

// What the plan is made for: fewer collectives than matrices, each matrix's bytes counted once each
// way.
TEST(Layerwise, CountersTellEachMatrixesBytes) {
  const ProcessGrid grid{1, 4};
  testing::RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(kShapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, grid.size(), 5);
    auto runtime = *Runtime::Create(testing::OptionsFor(grid, Strategy::kLayerwise), rank.device,
                                    rank.transport);
    for (std::size_t m = 0; m < model.size(); ++m) {
      ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, MuonOptions{.lr = 0.05})).ok());
    }
    ASSERT_TRUE(runtime->Commit().ok());
    for (int m = static_cast<int>(model.size()) - 1; m >= 0; --m) {
      const std::vector<float> gradient = model.Gradient(m, 0);
      ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
    }
    ASSERT_TRUE(runtime->Step().ok());
    ASSERT_TRUE(runtime->WaitForStep().ok());
    const std::vector<MatrixCounters> counters = runtime->Counters();
    for (std::size_t m = 0; m < counters.size(); ++m) {
      EXPECT_EQ(counters[m].collectives, 2);
      EXPECT_EQ(counters[m].bytes, 2 * 4 * kShapes[m].rows * kShapes[m].cols);
      EXPECT_EQ(counters[m].fallback, "");
      EXPECT_NE(counters[m].path.find("reduce-scatter, NS, all-gather"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace weft
