// Distributed steps against the serial float64 reference.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <mutex>
#include <numeric>
#include <string>
#include <tuple>

#include "tests/support/halves.h"
#include "tests/support/model.h"
#include "tests/support/way.h"
#include "tests/support/world.h"
#include "tools/reference/update.h"

namespace weft {
namespace {

using testing::RankModel;
using testing::RunWorld;
using testing::Shape;
using testing::Way;

constexpr std::uint64_t kSeed = 21;
constexpr double kLr = 0.05;

MuonOptions Muon() {
  MuonOptions muon;
  muon.lr = kLr;
  muon.momentum = 0.9;
  muon.weight_decay = 0.1;
  return muon;
}

reference::MuonSettings MuonReference() {
  reference::MuonSettings settings;
  settings.lr = kLr;
  settings.momentum = 0.9;
  settings.weight_decay = 0.1;
  settings.iterations.assign(5, {3.4445, -4.7750, 2.0315});
  return settings;
}

// Whole weights of every matrix after `steps` steps.
std::vector<std::vector<double>> Expected(const std::vector<Shape>& shapes, int world, int steps,
                                          bool adamw) {
  const RankModel model(shapes, Layout::kReplicated, GradientKind::kLocal, 0, world, kSeed);
  std::vector<std::vector<double>> weights;
  for (std::size_t m = 0; m < shapes.size(); ++m) {
    const std::vector<float> initial = testing::Normal(model.Size(m), kSeed, 1, m);
    std::vector<double> weight(initial.begin(), initial.end());
    std::vector<double> momentum(weight.size(), 0.0), second(weight.size(), 0.0);
    for (int step = 0; step < steps; ++step) {
      const std::vector<float> mean = model.MeanGradient(m, step);
      const std::vector<double> gradient(mean.begin(), mean.end());
      if (adamw) {
        reference::AdamWStep({.lr = kLr}, step + 1, gradient, momentum, second, weight);
      } else {
        reference::MuonStep(MuonReference(), shapes[m].rows, shapes[m].cols, gradient, momentum,
                            weight);
      }
    }
    weights.push_back(std::move(weight));
  }
  return weights;
}

struct Outcome {
  std::vector<MatrixCounters> counters;  // summed over ranks
};

// Trains and compares every rank's part of every weight with the reference.
Outcome TrainAndCompare(const std::vector<Shape>& shapes, const ProcessGrid& grid,
                        Strategy strategy, Layout layout, GradientKind kind, int steps,
                        bool adamw = false) {
  const auto expected = Expected(shapes, grid.size(), steps, adamw);
  Outcome outcome;
  outcome.counters.resize(shapes.size());
  std::mutex mutex;
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(shapes, layout, kind, rank.rank, grid.size(), kSeed, grid.ranks_per_node);
    auto runtime =
        *Runtime::Create(testing::OptionsFor(grid, strategy), rank.device, rank.transport);
    for (std::size_t m = 0; m < model.size(); ++m) {
      Rule rule = Muon();
      if (adamw) rule = AdamWOptions{.lr = kLr};
      ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, rule)).ok());
    }
    const absl::Status committed = runtime->Commit();
    ASSERT_TRUE(committed.ok()) << committed;
    for (int step = 0; step < steps; ++step) {
      for (int m = static_cast<int>(model.size()) - 1; m >= 0; --m) {
        const std::vector<float> gradient = model.Gradient(m, step);
        const auto job = runtime->Submit({.matrix = m, .gradient = gradient.data()});
        ASSERT_TRUE(job.ok()) << job.status();
      }
      const absl::Status closed = runtime->Step();
      ASSERT_TRUE(closed.ok()) << closed;
      for (std::size_t m = 0; m < model.size(); ++m) {
        ASSERT_TRUE(runtime->WaitForLayer(static_cast<int>(m)).ok());
      }
    }
    const absl::Status done = runtime->WaitForStep();
    ASSERT_TRUE(done.ok()) << done;
    for (std::size_t m = 0; m < model.size(); ++m) {
      const std::vector<float> whole(expected[m].begin(), expected[m].end());
      const std::vector<float> own = model.OwnRows(m, whole);
      double error = 0, norm = 0;
      ASSERT_EQ(own.size(), model.weight(m).size());
      for (std::size_t i = 0; i < own.size(); ++i) {
        error += std::pow(model.weight(m)[i] - own[i], 2);
        norm += std::pow(own[i], 2);
      }
      EXPECT_LE(std::sqrt(error), 3e-5 * std::sqrt(norm))
          << "rank " << rank.rank << ", " << shapes[m].rows << " x " << shapes[m].cols << ", "
          << Name(strategy) << ", " << Name(layout) << ", gradient " << Name(kind);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    const std::vector<MatrixCounters> counters = runtime->Counters();
    for (std::size_t m = 0; m < counters.size(); ++m) {
      outcome.counters[m].ns_runs += counters[m].ns_runs;
      outcome.counters[m].updates += counters[m].updates;
      EXPECT_EQ(counters[m].last_gradient_step, steps - 1);
    }
  });
  return outcome;
}

// Wide, tall, square, with rows that no number of ranks divides, and fewer than the largest grid's
// ranks.
const std::vector<Shape> kMixed = {{24, 16}, {16, 24}, {16, 16}, {7, 3}, {1, 9}, {9, 1}, {5, 40}};

class EveryStrategy : public ::testing::TestWithParam<testing::WayOnGrid> {};

TEST_P(EveryStrategy, EqualsTheSerialReference) {
  const auto& [grid, way, kind] = GetParam();
  TrainAndCompare(kMixed, grid, way.strategy, way.layout, kind, 7);
}

TEST_P(EveryStrategy, AdamWEqualsTheSerialReference) {
  const auto& [grid, way, kind] = GetParam();
  TrainAndCompare(kMixed, grid, way.strategy, way.layout, kind, 7, /*adamw=*/true);
}

const auto kGrids = ::testing::Values(ProcessGrid{1, 1}, ProcessGrid{1, 4}, ProcessGrid{3, 1},
                                      ProcessGrid{2, 2}, ProcessGrid{4, 2}, ProcessGrid{3, 3});

INSTANTIATE_TEST_SUITE_P(
    Grids, EveryStrategy,
    ::testing::Combine(kGrids,
                       ::testing::Values(Way{Strategy::kReplicated, Layout::kReplicated},
                                         Way{Strategy::kGather, Layout::kSharded},
                                         Way{Strategy::kOwner, Layout::kReplicated},
                                         Way{Strategy::kOwner, Layout::kSharded},
                                         Way{Strategy::kNodeLocal, Layout::kReplicated},
                                         Way{Strategy::kNodeLocal, Layout::kSharded},
                                         Way{Strategy::kLayerwise, Layout::kReplicated},
                                         Way{Strategy::kLayerwise, Layout::kSharded}),
                       ::testing::Values(GradientKind::kLocal, GradientKind::kReduced)),
    testing::NameOfWayOnGrid);

INSTANTIATE_TEST_SUITE_P(
    GridsOfNodes, EveryStrategy,
    ::testing::Combine(kGrids,
                       ::testing::Values(Way{Strategy::kGather, Layout::kNodeSharded},
                                         Way{Strategy::kOwner, Layout::kNodeSharded},
                                         Way{Strategy::kNodeLocal, Layout::kNodeSharded}),
                       ::testing::Values(GradientKind::kLocal, GradientKind::kReduced,
                                         GradientKind::kReplica)),
    testing::NameOfWayOnGrid);

// Case 4: never NS on a shard.
TEST(Correctness, ShardedOverTwoRanksEqualsOneRank) {
  for (const Strategy strategy : {Strategy::kGather, Strategy::kOwner, Strategy::kLayerwise}) {
    TrainAndCompare({{256, 256}}, {1, 2}, strategy, Layout::kSharded, GradientKind::kReduced, 1);
  }
}

// Case 13: more ranks than rows, uneven and empty shards.
TEST(Correctness, UnevenAndEmptyShardsEqualOneRank) {
  const std::vector<std::pair<Shape, int>> cases = {
      {{18, 32}, 8}, {{17, 32}, 4}, {{1, 32}, 2}, {{3, 32}, 2}};
  for (const auto& [shape, world] : cases) {
    for (const Strategy strategy : {Strategy::kGather, Strategy::kOwner, Strategy::kLayerwise}) {
      TrainAndCompare({shape}, {1, world}, strategy, Layout::kSharded, GradientKind::kLocal, 3);
    }
  }
}

// Case 14: empty parameters, one parameter for four ranks, groups of one.
TEST(Correctness, EmptyParametersAndIdleRanks) {
  for (const Layout layout : {Layout::kReplicated, Layout::kSharded}) {
    for (const Strategy strategy : {Strategy::kOwner, Strategy::kLayerwise}) {
      const auto train = [&](const std::vector<Shape>& shapes, const ProcessGrid& grid) {
        TrainAndCompare(shapes, grid, strategy, layout, GradientKind::kLocal, 2);
      };
      train({{2, 4}, {0, 4}, {6, 4}}, {1, 2});
      train({{6, 4}}, {1, 4});
      train({{6, 4}, {4, 6}}, {2, 2});
      train({{6, 4}, {4, 0}}, {4, 1});
    }
  }
}

// Case 16: with owners, each NS runs once in the world, or in each node; where everyone repeats it,
// once per rank.
TEST(Correctness, EachNsRunsOnceWhereItsOwnerIs) {
  const std::vector<Shape> shapes(8, Shape{12, 8});
  for (const auto& [strategy, layout, per_step] :
       {std::tuple{Strategy::kOwner, Layout::kReplicated, 1},
        std::tuple{Strategy::kOwner, Layout::kSharded, 1},
        std::tuple{Strategy::kNodeLocal, Layout::kReplicated, 2},
        std::tuple{Strategy::kNodeLocal, Layout::kSharded, 2},
        std::tuple{Strategy::kLayerwise, Layout::kReplicated, 1},
        std::tuple{Strategy::kLayerwise, Layout::kSharded, 1},
        std::tuple{Strategy::kGather, Layout::kSharded, 4},
        std::tuple{Strategy::kReplicated, Layout::kReplicated, 4}}) {
    const Outcome outcome =
        TrainAndCompare(shapes, {2, 2}, strategy, layout, GradientKind::kLocal, 2);
    for (const MatrixCounters& counters : outcome.counters) {
      EXPECT_EQ(counters.ns_runs, 2 * per_step) << Name(strategy);
    }
  }
}

// Case 12: five matrices, three steps, fifteen runs.
TEST(Correctness, FiveMatricesInThreeStepsAreFifteenRuns) {
  const Outcome outcome =
      TrainAndCompare({{8, 6}, {6, 8}, {8, 8}, {4, 9}, {9, 4}}, {1, 2}, Strategy::kOwner,
                      Layout::kReplicated, GradientKind::kLocal, 3);
  std::int64_t runs = 0;
  for (const MatrixCounters& counters : outcome.counters) runs += counters.ns_runs;
  EXPECT_EQ(runs, 15);
}

TEST(Correctness, SixtyFourRanksStepTwoHundredSmallMatrices) {
  std::vector<Shape> shapes;
  for (int m = 0; m < 200; ++m) shapes.push_back({4 + m % 13, 3 + m % 17});
  const Outcome outcome = TrainAndCompare(shapes, {8, 8}, Strategy::kOwner, Layout::kReplicated,
                                          GradientKind::kLocal, 1);
  for (const MatrixCounters& counters : outcome.counters) EXPECT_EQ(counters.ns_runs, 1);
}

// 16-bit weights and gradients: the update is formed in fp32 and rounded once, and every copy
// agrees.
class HalfWeights : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Correctness, HalfWeights, ::testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& type) { return std::string(Name(type.param)); });

TEST_P(HalfWeights, StayWithinTheirRounding) {
  const DType type = GetParam();
  const ProcessGrid grid{2, 2};
  std::array<std::vector<std::uint16_t>, 4> results;
  const std::vector<float> initial = testing::Normal(16 * 24, 7);
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    std::vector<std::uint16_t>& weight = results[rank.rank];
    for (const float value : initial) weight.push_back(testing::HalfBits(type, value));
    auto runtime = *Runtime::Create(testing::OptionsFor(grid), rank.device, rank.transport);
    MatrixSpec spec{.name = "w",
                    .rows = 16,
                    .cols = 24,
                    .dtype = type,
                    .weight = weight.data(),
                    .rule = Muon()};
    ASSERT_TRUE(runtime->AddMatrix(spec).ok());
    ASSERT_TRUE(runtime->Commit().ok());
    std::vector<std::uint16_t> gradient;
    for (const float value : testing::Normal(16 * 24, 8, rank.rank)) {
      gradient.push_back(testing::HalfBits(type, value));
    }
    ASSERT_TRUE(runtime->Submit({.matrix = 0, .gradient = gradient.data()}).ok());
    ASSERT_TRUE(runtime->Step().ok());
    ASSERT_TRUE(runtime->WaitForStep().ok());
  });
  std::vector<double> mean(16 * 24, 0.0), momentum(16 * 24, 0.0), weight;
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<float> part = testing::Normal(16 * 24, 8, rank);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += testing::RoundTo(type, part[i]) / 4;
  }
  for (const float value : initial) weight.push_back(testing::RoundTo(type, value));
  reference::MuonStep(MuonReference(), 16, 24, mean, momentum, weight);
  for (const auto& result : results) {
    EXPECT_EQ(result, results[0]);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      // One rounding of the weight, and of the summed gradients on the way to the owner, which
      // moves the direction by at most five times as much.
      EXPECT_NEAR(testing::HalfValue(type, result[i]), weight[i],
                  testing::RoundingError(type, std::abs(weight[i])) +
                      5 * kLr * testing::RoundingError(type, 1));
    }
  }
}

}  // namespace
}  // namespace weft
