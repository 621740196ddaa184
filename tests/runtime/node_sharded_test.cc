// Layout node_sharded: rows over the ranks of each node, copies across nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/runtime/trial.h"
#include "tests/support/commit.h"
#include "tests/support/model.h"
#include "tests/support/world.h"
#include "weft/auto_strategy.h"
#include "weft/runtime.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ModelMatrix;
using testing::OptionsFor;
using testing::RankModel;
using testing::RunWorld;
using testing::Shape;
using testing::Trial;

constexpr Strategy kStrategies[] = {Strategy::kGather, Strategy::kOwner, Strategy::kNodeLocal};
constexpr GradientKind kKinds[] = {GradientKind::kLocal, GradientKind::kReduced,
                                   GradientKind::kReplica};

std::string NameOf(Strategy strategy, GradientKind kind) {
  return std::string(Name(strategy)) + ", " + std::string(Name(kind));
}

// Wide, tall, square, uneven, with fewer rows than ranks, none at all, and all on the last rank.
std::vector<ModelMatrix> Matrices(const ProcessGrid& grid, GradientKind kind) {
  std::vector<ModelMatrix> matrices;
  for (const Shape& shape :
       std::vector<Shape>{{16, 24}, {24, 16}, {16, 16}, {7, 3}, {2, 9}, {0, 4}, {9, 5}, {1, 6}}) {
    matrices.push_back(
        {shape, Layout::kNodeSharded, kind, DefaultShardRows(shape.rows, grid.ranks_per_node)});
  }
  std::vector<std::int64_t>& last = matrices.back().shard_rows;
  last.assign(last.size(), 0);
  last.back() = 1;
  return matrices;
}

// What a rank can be asked to do with its model, beside training it as it is.
struct Training {
  std::vector<ModelMatrix> matrices;
  RuntimeOptions options;
  std::function<Rule(std::size_t)> rule = [](std::size_t) { return MuonOptions{.lr = 0.05}; };
  int steps = 3;
};

// By rank and matrix, as held.
using Weights = std::vector<std::vector<std::vector<float>>>;
Weights Train(const Training& training) {
  const ProcessGrid& grid = training.options.topology.grid;
  Weights weights(grid.size());
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    RankModel model(training.matrices, rank.rank, grid.size(), 5);
    auto runtime = *Runtime::Create(training.options, rank.device, rank.transport);
    for (std::size_t m = 0; m < model.size(); ++m) {
      const auto added = runtime->AddMatrix(model.Spec(m, training.rule(m)));
      ASSERT_TRUE(added.ok()) << added.status();
    }
    const absl::Status committed = runtime->Commit();
    ASSERT_TRUE(committed.ok()) << committed;
    for (int step = 0; step < training.steps; ++step) {
      for (int m = static_cast<int>(model.size()) - 1; m >= 0; --m) {
        const std::vector<float> gradient = model.Gradient(m, step);
        const auto job = runtime->Submit({.matrix = m, .gradient = gradient.data()});
        ASSERT_TRUE(job.ok()) << job.status();
      }
      ASSERT_TRUE(runtime->Step().ok());
    }
    const absl::Status done = runtime->WaitForStep();
    ASSERT_TRUE(done.ok()) << done;
    for (std::size_t m = 0; m < model.size(); ++m) weights[rank.rank].push_back(model.weight(m));
  });
  return weights;
}

Training TrainingOf(const ProcessGrid& grid, Strategy strategy, std::vector<ModelMatrix> matrices) {
  Training training{.matrices = std::move(matrices), .options = OptionsFor(grid, strategy)};
  training.options.pass_through = PassThrough::kNever;
  return training;
}

std::vector<ModelMatrix> As(std::vector<ModelMatrix> matrices, Layout layout,
                            GradientKind replica) {
  for (ModelMatrix& matrix : matrices) {
    matrix.layout = layout;
    if (matrix.gradient == GradientKind::kReplica) matrix.gradient = replica;
    if (layout == Layout::kReplicated) matrix.shard_rows.clear();
  }
  return matrices;
}

TEST(NodeSharded, OnOneNodeIsShardedBitForBit) {
  for (const Strategy strategy : kStrategies) {
    for (const GradientKind kind : kKinds) {
      SCOPED_TRACE(NameOf(strategy, kind));
      const ProcessGrid grid{1, 3};
      Training training = TrainingOf(grid, strategy, Matrices(grid, kind));
      const Weights weights = Train(training);
      training.matrices = As(training.matrices, Layout::kSharded, GradientKind::kReduced);
      EXPECT_EQ(weights, Train(training));
    }
  }
}

TEST(NodeSharded, WithOneRankPerNodeIsReplicatedBitForBit) {
  for (const Strategy strategy : {Strategy::kReplicated, Strategy::kGather, Strategy::kOwner,
                                  Strategy::kNodeLocal, Strategy::kLayerwise}) {
    for (const GradientKind kind : kKinds) {
      SCOPED_TRACE(NameOf(strategy, kind));
      const ProcessGrid grid{3, 1};
      Training training = TrainingOf(grid, strategy, Matrices(grid, kind));
      const Weights weights = Train(training);
      training.matrices = As(training.matrices, Layout::kReplicated, GradientKind::kLocal);
      EXPECT_EQ(weights, Train(training));
    }
  }
}

// Sums are formed in the node, then over the nodes, whoever needs them.
TEST(NodeSharded, StrategiesAndNodesAgreeBitForBit) {
  const ProcessGrid grid{2, 3};
  for (const GradientKind kind : kKinds) {
    const Weights gathered = Train(TrainingOf(grid, Strategy::kGather, Matrices(grid, kind)));
    for (int rank = 0; rank < grid.size(); ++rank) {
      EXPECT_EQ(gathered[rank], gathered[grid.local_of(rank)]);
    }
    for (const Strategy strategy : {Strategy::kOwner, Strategy::kNodeLocal}) {
      EXPECT_EQ(Train(TrainingOf(grid, strategy, Matrices(grid, kind))), gathered)
          << NameOf(strategy, kind);
    }
    Training passed = TrainingOf(grid, Strategy::kOwner, Matrices(grid, kind));
    passed.options.pass_through = PassThrough::kAlways;
    EXPECT_EQ(Train(passed), gathered) << Name(kind);
  }
}

// Nothing is summed where gradients come reduced, so that only what holds the rows differs.
std::vector<std::vector<float>> WholeOf(const Weights& weights, const ProcessGrid& grid) {
  std::vector<std::vector<float>> whole = weights[0];
  for (int rank = 1; rank < grid.ranks_per_node; ++rank) {
    for (std::size_t m = 0; m < whole.size(); ++m) {
      whole[m].insert(whole[m].end(), weights[rank][m].begin(), weights[rank][m].end());
    }
  }
  return whole;
}

TEST(NodeSharded, CustomAndPeriodicRulesSeeWholeRowsAsIfReplicated) {
  const ProcessGrid grid{2, 2};
  Trial trial;
  const auto rule = [&](std::size_t m) -> Rule {
    if (m % 3 == 0) return testing::RuleOf(trial, RuleKind::kCustom);
    MuonOptions muon{.lr = 0.05};
    muon.periodic.period = m % 3 == 1 ? 3 : 1;
    return muon;
  };
  const auto train = [&](Strategy strategy, Layout layout) {
    Training training = TrainingOf(
        grid, strategy, As(Matrices(grid, GradientKind::kReduced), layout, GradientKind::kLocal));
    training.rule = rule;
    training.steps = 4;
    return Train(training);
  };
  const Weights replicated = train(Strategy::kReplicated, Layout::kReplicated);
  // Whole rows of a wide matrix have one norm wherever they are; sums of squares of tall ones do
  // not add up in one order.
  for (const Strategy strategy : kStrategies) {
    const auto whole = WholeOf(train(strategy, Layout::kNodeSharded), grid);
    for (std::size_t m = 0; m < whole.size(); ++m) {
      ASSERT_EQ(whole[m].size(), replicated[0][m].size());
      for (std::size_t i = 0; i < whole[m].size(); ++i) {
        ASSERT_NEAR(whole[m][i], replicated[0][m][i], 1e-5) << Name(strategy) << ", matrix " << m;
      }
    }
  }
}

// Parts of rows lie on several ranks, and padding on the last.
TEST(NodeSharded, BlocksAndPaddingAreThoseOfTheWholeMatrix) {
  const ProcessGrid grid{2, 2};
  const auto train = [&](Strategy strategy, Layout layout) {
    Weights weights(grid.size());
    RunWorld({.grid = grid}, [&](testing::Rank rank) {
      const std::vector<ModelMatrix> matrices = {{{26, 12},
                                                  layout,
                                                  GradientKind::kReduced,
                                                  layout == Layout::kNodeSharded
                                                      ? std::vector<std::int64_t>{11, 15}
                                                      : std::vector<std::int64_t>{}}};
      RankModel model(matrices, rank.rank, grid.size(), 5);
      auto runtime = *Runtime::Create(OptionsFor(grid, strategy), rank.device, rank.transport);
      MatrixSpec spec = model.Spec(0, MuonOptions{.lr = 0.05});
      spec.padding_rows = 2;
      spec.row_blocks = {4, 8};
      spec.row_groups = 2;
      spec.column_blocks = {6, 6};
      ASSERT_TRUE(runtime->AddMatrix(spec).ok());
      ASSERT_TRUE(runtime->Commit().ok());
      for (int step = 0; step < 3; ++step) {
        const std::vector<float> gradient = model.Gradient(0, step);
        ASSERT_TRUE(runtime->Submit({.matrix = 0, .gradient = gradient.data()}).ok());
        ASSERT_TRUE(runtime->Step().ok());
      }
      ASSERT_TRUE(runtime->WaitForStep().ok());
      weights[rank.rank].push_back(model.weight(0));
    });
    return weights;
  };
  const Weights replicated = train(Strategy::kReplicated, Layout::kReplicated);
  for (const Strategy strategy : kStrategies) {
    EXPECT_EQ(WholeOf(train(strategy, Layout::kNodeSharded), grid)[0], replicated[0][0])
        << Name(strategy);
  }
}

// What a rule that is refused at registration leaves: nothing, so that the right one can follow.
TEST(NodeSharded, BadRegistrationsAreOneSentenceAndChangeNothing) {
  RunWorld({.grid = {2, 2}}, [](testing::Rank rank) {
    const Shape shape{6, 4};
    RankModel model({shape}, Layout::kNodeSharded, GradientKind::kReplica, rank.rank, 4, 5, 2);
    auto runtime = *Runtime::Create(OptionsFor({2, 2}), rank.device, rank.transport);
    const MatrixSpec good = model.Spec(0, MuonOptions{});
    const auto refused = [&](const std::function<void(MatrixSpec&)>& change) {
      MatrixSpec spec = good;
      change(spec);
      const auto added = runtime->AddMatrix(spec);
      EXPECT_EQ(added.status().code(), absl::StatusCode::kInvalidArgument);
      return std::string(added.status().message());
    };
    EXPECT_EQ(refused([](MatrixSpec& spec) {
                spec.shard_rows = {2, 2, 1, 1};
              }),
              "matrix 'm0': shard_rows has 4 entries for 2 ranks per node");
    EXPECT_EQ(refused([](MatrixSpec& spec) {
                spec.shard_rows = {2, 2};
              }),
              "matrix 'm0': shard_rows add up to 4, not to its 6 rows");
    EXPECT_EQ(refused([](MatrixSpec& spec) {
                spec.layout = Layout::kSharded;
                spec.shard_rows = {};
              }),
              "matrix 'm0': gradients of kind replica are for the layout node_sharded");
    EXPECT_EQ(refused([](MatrixSpec& spec) { spec.weight = nullptr; }),
              "matrix 'm0': its weight is null");
    ASSERT_TRUE(runtime->AddMatrix(good).ok());
    ASSERT_TRUE(runtime->Commit().ok());
  });
}

TEST(NodeSharded, StrategiesThatCannotServeItSaySo) {
  MatrixSpec spec;
  spec.name = "w";
  spec.rows = spec.cols = 8;
  spec.layout = Layout::kNodeSharded;
  for (const Strategy strategy : {Strategy::kReplicated, Strategy::kLayerwise}) {
    const absl::Status refused = PlanFor({spec}, OptionsFor({2, 2}, strategy)).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("'w' is node_sharded"), HasSubstr("gather, owner or node_local")));
    spec.rule = AdamWOptions{};
    EXPECT_TRUE(PlanFor({spec}, OptionsFor({2, 2}, strategy)).ok());
    spec.rule = MuonOptions{};
  }
}

TEST(NodeSharded, AutoLeavesOutWhatCannotServeIt) {
  MatrixSpec spec;
  spec.name = "w";
  spec.rows = spec.cols = 64;
  spec.layout = Layout::kNodeSharded;
  RuntimeOptions options = OptionsFor({2, 2});
  options.auto_strategy = TrainerModel{};
  const auto plan = PlanFor({spec}, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->strategy,
              ::testing::AnyOf(Strategy::kGather, Strategy::kOwner, Strategy::kNodeLocal));
  // On other numbers of nodes it is what it comes to there.
  EXPECT_TRUE(SwitchFor({spec}, options, 4).ok());
}

TEST(NodeSharded, RanksThatRegisterOtherLayoutsAreTold) {
  RunWorld({.grid = {2, 2}}, [](testing::Rank rank) {
    const Layout layout = rank.rank == 2 ? Layout::kReplicated : Layout::kNodeSharded;
    RankModel model({{6, 4}}, layout, GradientKind::kLocal, rank.rank, 4, 5, 2);
    auto runtime = *Runtime::Create(OptionsFor({2, 2}), rank.device, rank.transport);
    ASSERT_TRUE(runtime->AddMatrix(model.Spec(0, MuonOptions{})).ok());
    EXPECT_THAT(std::string(runtime->Commit().message()),
                HasSubstr("matrix 'm0': rank 0 has layout node_sharded, rank 2 has replicated"));
  });
}

}  // namespace
}  // namespace weft
