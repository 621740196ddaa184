// Runtimes that pass matrices through: what they compute, and how they choose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/commit.h"
#include "tests/support/model.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::OptionsFor;
using testing::RankModel;
using testing::RunWorld;
using testing::Shape;

constexpr std::uint64_t kSeed = 5;

struct Trained {
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<float>> states;
  std::vector<MatrixCounters> counters;
};

// By rank, after three steps.
std::map<int, Trained> Train(const RuntimeOptions& options, Layout layout, GradientKind kind) {
  const std::vector<Shape> shapes = {{12, 20}, {16, 16}, {20, 6}, {16, 16}, {1, 9}, {0, 4}};
  const int world = options.topology.grid.size();
  std::map<int, Trained> trained;
  std::mutex mutex;
  RunWorld({.grid = options.topology.grid}, [&](testing::Rank rank) {
    RankModel model(shapes, layout, kind, rank.rank, world, kSeed);
    auto runtime = testing::Commit(options, rank, model, MuonOptions{.weight_decay = 0.1});
    for (int step = 0; step < 3; ++step) {
      for (int m = static_cast<int>(shapes.size()) - 1; m >= 0; --m) {
        const std::vector<float> gradient = model.Gradient(m, step);
        ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
      }
      ASSERT_TRUE(runtime->Step().ok());
    }
    const absl::Status done = runtime->WaitForStep();
    ASSERT_TRUE(done.ok()) << done;
    const std::lock_guard<std::mutex> lock(mutex);
    Trained& mine = trained[rank.rank];
    mine.weights = model.weights();
    for (std::size_t m = 0; m < shapes.size(); ++m) {
      const auto state = *runtime->State(static_cast<MatrixId>(m));
      mine.states.emplace_back(state.begin(), state.end());
    }
    mine.counters = runtime->Counters();
  });
  return trained;
}

// Those equal the serial reference (correctness_test, random_model_test).
TEST(PassThrough, TrainsBitByBitAsTheVanillaStrategy) {
  for (const ProcessGrid& grid : {ProcessGrid{1, 1}, ProcessGrid{1, 3}, ProcessGrid{2, 2}}) {
    for (const Layout layout : {Layout::kReplicated, Layout::kSharded}) {
      for (const GradientKind kind : {GradientKind::kLocal, GradientKind::kReduced}) {
        RuntimeOptions options = OptionsFor(grid);
        options.pass_through = PassThrough::kAlways;
        auto passed = Train(options, layout, kind);
        auto vanilla = Train(OptionsFor(grid, layout == Layout::kReplicated ? Strategy::kReplicated
                                                                            : Strategy::kGather),
                             layout, kind);
        for (int rank = 0; rank < grid.size(); ++rank) {
          EXPECT_EQ(passed[rank].weights, vanilla[rank].weights);
          EXPECT_EQ(passed[rank].states, vanilla[rank].states);
          ASSERT_EQ(passed[rank].counters.size(), vanilla[rank].counters.size());
          for (std::size_t m = 0; m < passed[rank].counters.size(); ++m) {
            const MatrixCounters& mine = passed[rank].counters[m];
            EXPECT_EQ(mine.ns_runs, 3);
            EXPECT_EQ(mine.updates, 3);
            EXPECT_EQ(mine.collectives, vanilla[rank].counters[m].collectives);
            EXPECT_EQ(mine.bytes, vanilla[rank].counters[m].bytes);
            EXPECT_THAT(mine.path, HasSubstr(grid.size() > 1 ? "pass-through: " : "local: "));
          }
        }
      }
    }
  }
}

Rule Nothing() {
  return CustomRule{.enqueue = [](const RuleContext&) { return absl::OkStatus(); }};
}

// Gradients that come reduced, on links on which a broadcast takes long.
std::vector<MatrixSpec> SmallAndLarge() {
  std::vector<MatrixSpec> specs = {{.name = "small", .rows = 256, .cols = 256},
                                   {.name = "large", .rows = 8192, .cols = 8192},
                                   {.name = "custom", .rows = 256, .cols = 256},
                                   {.name = "adamw", .rows = 256, .cols = 256}};
  specs[2].rule = Nothing();
  specs[3].rule = AdamWOptions{};
  for (MatrixSpec& spec : specs) spec.gradient = GradientKind::kReduced;
  return specs;
}

RuntimeOptions Linked() {
  RuntimeOptions options = OptionsFor({1, 8});
  options.topology.intra = {20, 10};
  return options;
}

std::vector<bool> Passed(const RuntimeOptions& options,
                         const std::vector<MatrixSpec>& specs = SmallAndLarge()) {
  const auto plan = PlanFor(specs, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<bool> passed;
  for (const PlanMatrix& matrix : plan->matrices) {
    passed.push_back(matrix.pass_through);
    EXPECT_FALSE(matrix.pass_through && matrix.owner >= 0);
  }
  return passed;
}

TEST(PassThrough, TakesWhatPaysAndLeavesTheRest) {
  RuntimeOptions options = Linked();
  EXPECT_EQ(options.pass_through, PassThrough::kWhereItPays);
  EXPECT_EQ(Passed(options), (std::vector<bool>{true, false, false, false}));
  options.pass_through = PassThrough::kNever;
  EXPECT_EQ(Passed(options), (std::vector<bool>{false, false, false, false}));
  options.pass_through = PassThrough::kAlways;
  EXPECT_EQ(Passed(options), (std::vector<bool>{true, true, true, false}));
}

TEST(PassThrough, ChangesNothingWhereLinksCostNothing) {
  for (const ProcessGrid& grid : {ProcessGrid{1, 1}, ProcessGrid{1, 8}, ProcessGrid{2, 4}}) {
    RuntimeOptions options = OptionsFor(grid), never = options;
    never.pass_through = PassThrough::kNever;
    EXPECT_EQ(Fingerprint(*PlanFor(SmallAndLarge(), options)),
              Fingerprint(*PlanFor(SmallAndLarge(), never)));
  }
}

TEST(PassThrough, GoesByTheCostsThatAreGiven) {
  RuntimeOptions options = Linked();
  // A device on which NS is dear.
  options.costs =
      std::make_shared<const CostModel>(options.topology, AnalyticRates{.flops_per_second = 1e9});
  EXPECT_EQ(Passed(options), (std::vector<bool>{false, false, false, false}));
  options.topology = OptionsFor({1, 8}).topology;
  options.costs = std::make_shared<const CostModel>(Linked().topology);
  EXPECT_EQ(Passed(options), (std::vector<bool>{true, false, false, false}));
}

TEST(PassThrough, LeavesGivenOwnersAndCappedStatesAlone) {
  RuntimeOptions options = Linked();
  options.ownership.owners = {7, 6, 5, -1};
  EXPECT_EQ(Passed(options), (std::vector<bool>{false, false, false, false}));
  options.pass_through = PassThrough::kAlways;
  EXPECT_EQ(PlanFor(SmallAndLarge(), options).status().message(),
            "matrix 'small' has the given owner 7; it gets none, so -1 is meant.");
  options = Linked();
  options.ownership.state_bytes_cap = std::int64_t{1} << 40;
  EXPECT_EQ(Passed(options), (std::vector<bool>{false, false, false, false}));
}

TEST(PassThrough, OwnedMatricesKeepTheirOwners) {
  RuntimeOptions options = Linked();
  options.pass_through = PassThrough::kAlways;
  std::vector<MatrixSpec> specs = {{.name = "owned", .rows = 8, .cols = 8},
                                   {.name = "other", .rows = 8, .cols = 8}};
  specs[0].layout = Layout::kOwned;
  EXPECT_EQ(Passed(options, specs), (std::vector<bool>{false, true}));
}

TEST(PassThrough, DifferencesBetweenRanksAreNamed) {
  const auto message = [](void (*change)(RuntimeOptions&)) {
    // In a group of two, pairs would differ too, and be named.
    std::vector<std::string> messages(3);
    RunWorld({.grid = {1, 3}}, [&](testing::Rank rank) {
      RuntimeOptions options = OptionsFor({1, 3});
      if (rank.rank == 1) change(options);
      RankModel model({{4, 4}}, Layout::kReplicated, GradientKind::kReduced, rank.rank, 3, kSeed);
      auto runtime = *Runtime::Create(options, rank.device, rank.transport);
      ASSERT_TRUE(runtime->AddMatrix(model.Spec(0, MuonOptions{})).ok());
      messages[rank.rank] = std::string(runtime->Commit().message());
    });
    EXPECT_EQ(messages[0], messages[1]);
    EXPECT_EQ(messages[0], messages[2]);
    return messages[0];
  };
  EXPECT_THAT(message([](RuntimeOptions& o) { o.pass_through = PassThrough::kAlways; }),
              HasSubstr("options: rank 0 has pass_through auto, rank 1 has always"));
  // Equal costs of NS, others of collectives.
  EXPECT_THAT(message([](RuntimeOptions& o) {
                Topology linked = o.topology;
                linked.intra = {1e6, 0};
                o.costs = std::make_shared<const CostModel>(linked);
              }),
              HasSubstr("matrix 'm0': rank 0 has passed through false, rank 1 has true"));
}

TEST(PassThrough, BadOptionIsNamed) {
  RuntimeOptions options = Linked();
  options.pass_through = PassThrough(7);
  const absl::Status status = PlanFor(SmallAndLarge(), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("pass_through"), HasSubstr("names nothing")));
}

}  // namespace
}  // namespace weft
