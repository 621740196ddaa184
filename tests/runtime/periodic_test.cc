// Periodic Muon: NS in one of K steps, a row norm in the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/model.h"
#include "tests/support/way.h"
#include "tests/support/world.h"
#include "tools/reference/update.h"

namespace weft {
namespace {

using testing::OptionsFor;
using testing::RankModel;
using testing::RunWorld;
using testing::Shape;
using testing::Way;

constexpr std::uint64_t kSeed = 47;

MuonOptions Periodic(int period) {
  MuonOptions muon;
  muon.lr = 0.05;
  muon.momentum = 0.9;
  muon.weight_decay = 0.1;
  muon.periodic.period = period;
  return muon;
}

struct Setting {
  RuntimeOptions options;
  Layout layout = Layout::kSharded;
  GradientKind gradient = GradientKind::kReduced;
  std::vector<Shape> shapes;
  MuonOptions muon;
  int steps = 3;
};

struct Trained {
  std::vector<std::vector<std::vector<float>>> weights;  // by rank and matrix, as held
  std::vector<std::vector<MatrixCounters>> counters;     // by rank
  Plan plan;

  // Payload of collectives over all matrices, on a rank.
  std::int64_t Bytes(int rank) const {
    std::int64_t sum = 0;
    for (const MatrixCounters& matrix : counters[rank]) sum += matrix.bytes;
    return sum;
  }
};

Trained Train(const Setting& setting) {
  const int world = setting.options.topology.grid.size();
  Trained trained;
  trained.weights.resize(world);
  trained.counters.resize(world);
  std::mutex mutex;
  RunWorld({.grid = setting.options.topology.grid}, [&](testing::Rank rank) {
    RankModel model(setting.shapes, setting.layout, setting.gradient, rank.rank, world, kSeed);
    auto runtime = *Runtime::Create(setting.options, rank.device, rank.transport);
    for (std::size_t m = 0; m < model.size(); ++m) {
      ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, setting.muon)).ok());
    }
    const absl::Status committed = runtime->Commit();
    ASSERT_TRUE(committed.ok()) << committed;
    for (int step = 0; step < setting.steps; ++step) {
      for (int m = static_cast<int>(model.size()) - 1; m >= 0; --m) {
        const std::vector<float> gradient = model.Gradient(m, step);
        ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
      }
      ASSERT_TRUE(runtime->Step().ok());
      const absl::Status done = runtime->WaitForStep();
      ASSERT_TRUE(done.ok()) << done;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    for (std::size_t m = 0; m < model.size(); ++m) {
      const auto& weight = model.weight(m);
      trained.weights[rank.rank].emplace_back(weight.begin(), weight.end());
    }
    trained.counters[rank.rank] = runtime->Counters();
    if (rank.rank == 0) trained.plan = runtime->plan();
  });
  return trained;
}

const std::vector<Shape> kMixed = {{24, 16}, {16, 24}, {16, 16}, {7, 3}, {1, 9}, {9, 1}, {3, 40}};

constexpr Way kWays[] = {
    {Strategy::kReplicated, Layout::kReplicated}, {Strategy::kGather, Layout::kSharded},
    {Strategy::kOwner, Layout::kReplicated},      {Strategy::kOwner, Layout::kSharded},
    {Strategy::kNodeLocal, Layout::kReplicated},  {Strategy::kNodeLocal, Layout::kSharded},
};

Setting SettingOf(const ProcessGrid& grid, const Way& way, GradientKind gradient,
                  std::vector<Shape> shapes, int period, int steps) {
  Setting setting;
  setting.options = OptionsFor(grid, way.strategy);
  setting.options.pass_through = PassThrough::kNever;
  setting.layout = way.layout;
  setting.gradient = gradient;
  setting.shapes = std::move(shapes);
  setting.muon = Periodic(period);
  setting.steps = steps;
  return setting;
}

// What the other options of periodic Muon are changes nothing then.
TEST(Periodic, APeriodOfOneIsTheBaseStrategyBitForBit) {
  for (const Way& way : kWays) {
    Setting setting = SettingOf({2, 2}, way, GradientKind::kLocal, kMixed, 1, 4);
    const Trained periodic = [&] {
      Setting other = setting;
      other.muon.periodic.gamma = 100;
      other.options.spread_refreshes = false;
      return Train(other);
    }();
    const Trained base = Train(setting);
    EXPECT_EQ(Fingerprint(base.plan), Fingerprint(periodic.plan));
    EXPECT_EQ(base.weights, periodic.weights) << Name(way.strategy) << ", " << Name(way.layout);
  }
}

// All strategies give one result: which steps refresh does not go by them.
TEST(Periodic, EveryStrategyRefreshesInTheSameSteps) {
  const auto phases = [](const Way& way, const ProcessGrid& grid) {
    const Trained trained = Train(SettingOf(grid, way, GradientKind::kLocal, kMixed, 3, 1));
    std::vector<std::int32_t> result;
    for (const PlanMatrix& matrix : trained.plan.matrices) result.push_back(matrix.phase);
    return result;
  };
  const std::vector<std::int32_t> first = phases(kWays[0], {1, 2});
  EXPECT_EQ(std::set(first.begin(), first.end()), (std::set<std::int32_t>{0, 1, 2}));
  for (const Way& way : kWays) EXPECT_EQ(phases(way, {2, 2}), first);
}

class Cycle : public ::testing::TestWithParam<GradientKind> {};
INSTANTIATE_TEST_SUITE_P(Periodic, Cycle,
                         ::testing::Values(GradientKind::kLocal, GradientKind::kReduced),
                         [](const auto& kind) { return std::string(Name(kind.param)); });

// Of a cycle of three steps one gathers: two thirds of the bytes after the gradient's reduction go,
// and nothing comes in their place where rows are whole.
TEST_P(Cycle, OfWideMatricesGathersAThirdOfTheBytes) {
  const std::vector<Shape> wide = {{16, 24}, {8, 8}, {6, 40}, {12, 30}, {10, 20}};
  const Way gather{Strategy::kGather, Layout::kSharded};
  for (const bool spread : {true, false}) {
    Setting every = SettingOf({2, 2}, gather, GetParam(), wide, 1, 3);
    Setting third = SettingOf({2, 2}, gather, GetParam(), wide, 3, 3);
    every.options.spread_refreshes = third.options.spread_refreshes = spread;
    const Trained base = Train(every), periodic = Train(third);
    std::int64_t elements = 0;
    for (const Shape& shape : wide) elements += shape.rows * shape.cols;
    const std::int64_t reduction = GetParam() == GradientKind::kLocal ? 3 * 4 * elements : 0;
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(base.Bytes(rank) - reduction, 3 * 4 * elements);
      EXPECT_EQ(periodic.Bytes(rank) - reduction, 4 * elements);
    }
  }
}

// A tall one needs a vector of its columns' squares in each step between.
TEST_P(Cycle, OfTallMatricesSumsAVectorBetweenRefreshes) {
  const std::vector<Shape> tall = {{24, 16}, {40, 6}, {9, 2}};
  const Way gather{Strategy::kGather, Layout::kSharded};
  const Trained trained = Train(SettingOf({2, 2}, gather, GetParam(), tall, 3, 3));
  for (int rank = 0; rank < 4; ++rank) {
    for (std::size_t m = 0; m < tall.size(); ++m) {
      const std::int64_t whole = 4 * tall[m].rows * tall[m].cols;
      const std::int64_t reduction = GetParam() == GradientKind::kLocal ? 3 * whole : 0;
      EXPECT_EQ(trained.counters[rank][m].bytes, reduction + whole + 2 * 4 * tall[m].cols);
    }
  }
}

// With an owner the update is gathered there and the direction scattered, once in a cycle, and NS
// runs once in the world.
TEST_P(Cycle, OfAnOwnerOfShardsIsAGatherAndAScatter) {
  const std::vector<Shape> wide = {{16, 24}, {8, 8}, {6, 40}};
  const Way owner{Strategy::kOwner, Layout::kSharded};
  const Trained trained = Train(SettingOf({1, 3}, owner, GetParam(), wide, 3, 3));
  for (std::size_t m = 0; m < wide.size(); ++m) {
    const std::int64_t whole = 4 * wide[m].rows * wide[m].cols;
    const std::int64_t reduction = GetParam() == GradientKind::kLocal ? 3 * whole : 0;
    std::int64_t runs = 0;
    for (int rank = 0; rank < 3; ++rank) {
      runs += trained.counters[rank][m].ns_runs;
      EXPECT_EQ(trained.counters[rank][m].row_norms, 2);
      EXPECT_EQ(trained.counters[rank][m].updates, 3);
      EXPECT_EQ(trained.counters[rank][m].bytes, reduction + 2 * whole);
    }
    EXPECT_EQ(runs, 1);
  }
}

// Sums of squares of several matrices travel as one: those that need them in the same steps.
TEST(Periodic, SumsOfNormsOfAStepTravelAsOne) {
  const std::vector<Shape> tall(6, Shape{24, 16});
  Setting setting =
      SettingOf({1, 2}, {Strategy::kGather, Layout::kSharded}, GradientKind::kReduced, tall, 3, 1);
  const auto sums = [&] {
    std::vector<std::size_t> sizes;
    const Plan plan = Train(setting).plan;
    for (const Op& op : plan.ops) {
      if (op.kind == OpKind::kAllReduce) sizes.push_back(MatricesOf(plan, op).size());
    }
    return sizes;
  };
  EXPECT_THAT(sums(), ::testing::ElementsAre(2, 2, 2));
  setting.options.spread_refreshes = false;
  EXPECT_THAT(sums(), ::testing::ElementsAre(6));
}

// A refresh is due every `period` steps, counted from its phase on, whatever the others' periods.
TEST(Periodic, MatricesHavePeriodsOfTheirOwn) {
  const ProcessGrid grid{1, 2};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model({{8, 12}, {8, 12}, {8, 12}}, Layout::kSharded, GradientKind::kReduced,
                    rank.rank, 2, kSeed);
    RuntimeOptions options = OptionsFor(grid, Strategy::kGather);
    options.spread_refreshes = false;
    auto runtime = *Runtime::Create(options, rank.device, rank.transport);
    const int periods[] = {1, 2, 5};
    for (int m = 0; m < 3; ++m) {
      ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, Periodic(periods[m]))).ok());
    }
    ASSERT_TRUE(runtime->Commit().ok());
    EXPECT_EQ(CycleOf(runtime->plan()), 10);
    for (int step = 0; step < 11; ++step) {
      for (int m = 2; m >= 0; --m) {
        const std::vector<float> gradient = model.Gradient(m, step);
        ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
      }
      ASSERT_TRUE(runtime->Step().ok());
      ASSERT_TRUE(runtime->WaitForStep().ok());
    }
    const auto counters = runtime->Counters();
    const int refreshes[] = {11, 6, 3};
    for (int m = 0; m < 3; ++m) {
      EXPECT_EQ(counters[m].ns_runs, refreshes[m]);
      EXPECT_EQ(counters[m].row_norms, 11 - refreshes[m]);
    }
  });
}

struct Cut {
  std::vector<std::int64_t> rows;
  std::int64_t groups = 1;
  std::vector<std::int64_t> cols;
};

// The weight after a step of row norms with momenta of zero, each part by itself.
std::vector<float> AfterRowNorms(const Cut& cut, const Shape& shape, const MuonOptions& muon,
                                 const std::vector<float>& gradient, std::vector<float> weight) {
  reference::MuonSettings settings;
  settings.lr = muon.lr;
  settings.momentum = muon.momentum;
  settings.row_norm = true;
  std::int64_t top = 0;
  for (const std::int64_t rows : cut.rows) {
    std::int64_t left = 0;
    for (const std::int64_t cols : cut.cols) {
      std::vector<std::int64_t> places;
      for (std::int64_t group = 0; group < cut.groups; ++group) {
        for (std::int64_t i = 0; i < rows; ++i) {
          const std::int64_t row = group * (shape.rows / cut.groups) + top + i;
          for (std::int64_t j = 0; j < cols; ++j) places.push_back(row * shape.cols + left + j);
        }
      }
      std::vector<double> part, mean, momentum(places.size());
      for (const std::int64_t place : places) {
        part.push_back(weight[place]);
        mean.push_back(gradient[place]);
      }
      reference::MuonStep(settings, rows * cut.groups, cols, mean, momentum, part);
      for (std::size_t i = 0; i < places.size(); ++i) {
        weight[places[i]] = static_cast<float>(part[i]);
      }
      left += cols;
    }
    top += rows;
  }
  return weight;
}

// Several matrices stored as one have their rows normalized apart, the tall ones across ranks, also
// where a part lies in pieces.
TEST(Periodic, PartsAreNormalizedAsMatricesOfTheirOwn) {
  const ProcessGrid grid{1, 3};
  const Shape shape{42, 8};
  MuonOptions muon = Periodic(4);
  muon.weight_decay = 0;
  const std::vector<Cut> cuts = {
      {{5, 20, 3, 14}, 1, {8}}, {{42}, 1, {3, 5}}, {{4, 17}, 2, {8}}, {{2, 12}, 3, {7, 1}}};
  const std::vector<Way> ways = {{Strategy::kGather, Layout::kSharded},
                                 {Strategy::kOwner, Layout::kSharded},
                                 {Strategy::kOwner, Layout::kReplicated}};
  for (const Way& way : ways) {
    for (const Cut& cut : cuts) {
      RunWorld({.grid = grid}, [&](testing::Rank rank) {
        testing::ModelMatrix matrix{shape, way.layout, GradientKind::kReduced};
        if (way.layout == Layout::kSharded) matrix.shard_rows = {4, 30, 8};
        RankModel model({matrix}, rank.rank, 3, kSeed);
        RuntimeOptions options = OptionsFor(grid, way.strategy);
        options.pass_through = PassThrough::kNever;
        auto runtime = *Runtime::Create(options, rank.device, rank.transport);
        MatrixSpec spec = model.Spec(0, muon);
        spec.row_blocks = cut.rows;
        spec.row_groups = cut.groups;
        spec.column_blocks = cut.cols;
        ASSERT_TRUE(runtime->AddMatrix(spec).ok());
        ASSERT_TRUE(runtime->Commit().ok());
        const auto step = [&](const std::vector<float>& gradient) {
          ASSERT_TRUE(runtime->Submit({.matrix = 0, .gradient = gradient.data()}).ok());
          ASSERT_TRUE(runtime->Step().ok());
          ASSERT_TRUE(runtime->WaitForStep().ok());
        };
        // NS in the first step with a gradient of zeros: momentum and weight stay as they are.
        step(std::vector<float>(model.Gradient(0, 1).size()));
        step(model.Gradient(0, 1));
        const std::vector<float> expected = model.OwnRows(
            0, AfterRowNorms(cut, shape, muon, model.MeanGradient(0, 1), model.FirstWeight(0)));
        ASSERT_EQ(model.weight(0).size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(model.weight(0)[i], expected[i], 2e-6)
              << Name(way.strategy) << ", " << Name(way.layout) << ", " << cut.groups
              << " groups of " << cut.rows.size() << " x " << cut.cols.size();
        }
      });
    }
  }
}

TEST(Periodic, BadOptionsAreRefused) {
  const ProcessGrid grid{1, 1};
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model({{4, 4}}, Layout::kReplicated, GradientKind::kReduced, 0, 1, kSeed);
    auto runtime = *Runtime::Create(OptionsFor(grid), rank.device, rank.transport);
    const auto refused = [&](auto change) {
      MuonOptions muon = Periodic(3);
      change(muon.periodic);
      return std::string(runtime->AddMatrix(model.Spec(0, muon)).status().message());
    };
    using ::testing::HasSubstr;
    EXPECT_THAT(refused([](PeriodicOptions& p) { p.period = 0; }), HasSubstr("periodic.period"));
    EXPECT_THAT(refused([](PeriodicOptions& p) { p.period = 1001; }), HasSubstr("periodic.period"));
    EXPECT_THAT(refused([](PeriodicOptions& p) { p.gamma = -1; }), HasSubstr("periodic.gamma"));
    EXPECT_THAT(refused([](PeriodicOptions& p) { p.eps = 0; }), HasSubstr("periodic.eps"));
    EXPECT_THAT(refused([](PeriodicOptions& p) { p.eps = 2; }), HasSubstr("periodic.eps"));
  });
}

}  // namespace
}  // namespace weft
