// Matrices with padding rows, and several matrices stored as one: cases 8 and 9. Both must train as
// the matrices that are meant, registered one by one, train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/model.h"
#include "tests/support/way.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Normal;
using testing::OptionsFor;
using testing::RunWorld;
using testing::Way;

constexpr std::uint64_t kSeed = 33;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Matrix = std::vector<float>;  // whole, dense rows

// What a world trains: specs without weights, whole weights, and each rank's whole gradients.
struct Model {
  std::vector<MatrixSpec> specs;
  std::vector<Matrix> weights;
  std::function<Matrix(std::size_t matrix, int step, int rank)> gradient;
};

struct Trained {
  std::vector<Matrix> weights;  // whole
  // Of the matrices' state: that of the owner, or all shards, or rank 0's copy.
  std::vector<Matrix> states;
  std::int64_t ns_runs = 0;  // of all ranks and matrices
};

Matrix OwnRows(const MatrixSpec& spec, const Matrix& whole, int rank, int world) {
  if (spec.layout == Layout::kReplicated) return whole;
  std::vector<std::int64_t> rows = spec.shard_rows;
  if (rows.empty()) rows = DefaultShardRows(spec.rows, world);
  const auto first =
      whole.begin() +
      std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0}) * spec.cols;
  return {first, first + rows[rank] * spec.cols};
}

// Where each pass is reduced, in equal parts: halves lose no bit.
Trained Train(const RuntimeOptions& options, const Model& model, int steps) {
  const int parts = options.limits.reduce_each_pass ? options.limits.passes : 1;
  const int world = options.topology.grid.size();
  const std::size_t count = model.specs.size();
  std::vector<std::vector<Matrix>> weights(world), states(world);
  std::vector<std::int64_t> runs(world, 0);
  RunWorld({.grid = options.topology.grid}, [&](testing::Rank rank) {
    auto& own = weights[rank.rank];
    for (std::size_t m = 0; m < count; ++m) {
      own.push_back(OwnRows(model.specs[m], model.weights[m], rank.rank, world));
    }
    auto runtime = *Runtime::Create(options, rank.device, rank.transport);
    for (std::size_t m = 0; m < count; ++m) {
      MatrixSpec spec = model.specs[m];
      spec.weight = own[m].data();
      const auto added = runtime->AddMatrix(spec);
      ASSERT_TRUE(added.ok()) << added.status();
    }
    const absl::Status committed = runtime->Commit();
    ASSERT_TRUE(committed.ok()) << committed;
    for (int step = 0; step < steps; ++step) {
      for (std::size_t job = parts * count; job-- > 0;) {
        const std::size_t m = job % count;
        const MatrixSpec& spec = model.specs[m];
        const bool reduced = spec.gradient == GradientKind::kReduced;
        Matrix gradient = model.gradient(m, step, reduced ? 0 : rank.rank);
        if (reduced) gradient = OwnRows(spec, gradient, rank.rank, world);
        for (float& value : gradient) value /= static_cast<float>(parts);
        const auto submitted = runtime->Submit({.matrix = static_cast<MatrixId>(m),
                                                .gradient = gradient.data(),
                                                .more = job >= count});
        ASSERT_TRUE(submitted.ok()) << submitted.status();
      }
      ASSERT_TRUE(runtime->Step().ok());
      const absl::Status done = runtime->WaitForStep();
      ASSERT_TRUE(done.ok()) << done;
    }
    for (std::size_t m = 0; m < count; ++m) {
      const auto state = *runtime->State(static_cast<MatrixId>(m));
      states[rank.rank].emplace_back(state.begin(), state.end());
      runs[rank.rank] += runtime->Counters()[m].ns_runs;
    }
  });
  Trained result;
  for (std::size_t m = 0; m < count; ++m) {
    Matrix weight, state;
    for (int rank = 0; rank < world; ++rank) {
      const Matrix& part = weights[rank].at(m);
      if (model.specs[m].layout == Layout::kSharded) {
        weight.insert(weight.end(), part.begin(), part.end());
      } else if (rank == 0) {
        weight = part;
      } else {
        EXPECT_EQ(part, weight) << "rank " << rank;
      }
      const Matrix& part_state = states[rank].at(m);
      if (state.size() < model.weights[m].size()) {
        state.insert(state.end(), part_state.begin(), part_state.end());
      }
    }
    result.weights.push_back(std::move(weight));
    result.states.push_back(std::move(state));
  }
  result.ns_runs = std::accumulate(runs.begin(), runs.end(), std::int64_t{0});
  return result;
}

// The matrices that are meant, each registered alone.
Model Separate(const std::vector<std::int64_t>& rows, std::int64_t cols, const Rule& rule,
               GradientKind kind) {
  Model model;
  for (std::size_t m = 0; m < rows.size(); ++m) {
    MatrixSpec spec{.name = "b" + std::to_string(m), .rows = rows[m], .cols = cols};
    spec.rule = rule;
    spec.gradient = kind;
    model.specs.push_back(spec);
    model.weights.push_back(Normal(rows[m] * cols, kSeed, 1, m));
  }
  model.gradient = [rows, cols](std::size_t m, int step, int rank) {
    return Normal(rows[m] * cols, kSeed, 2 + static_cast<std::uint64_t>(step), m,
                  static_cast<std::uint64_t>(rank));
  };
  return model;
}

Matrix Stacked(const std::vector<Matrix>& blocks, std::int64_t padding, float filler) {
  Matrix whole;
  for (const Matrix& block : blocks) whole.insert(whole.end(), block.begin(), block.end());
  whole.insert(whole.end(), padding, filler);
  return whole;
}

// The same numbers stored as one matrix. Its gradients' padding is not a number.
Model Fused(const Model& separate, std::int64_t padding_rows, Layout layout,
            std::vector<std::int64_t> shard_rows = {}) {
  Model model;
  MatrixSpec spec = separate.specs[0];
  const std::int64_t padding = padding_rows * spec.cols;
  spec.name = "fused";
  spec.layout = layout;
  spec.shard_rows = std::move(shard_rows);
  spec.rows = spec.padding_rows = padding_rows;
  for (const MatrixSpec& block : separate.specs) spec.rows += block.rows;
  if (separate.specs.size() > 1) {
    for (const MatrixSpec& block : separate.specs) spec.row_blocks.push_back(block.rows);
  }
  model.specs = {spec};
  model.weights = {Stacked(separate.weights, padding, 0)};
  model.gradient = [separate, padding](std::size_t, int step, int rank) {
    std::vector<Matrix> blocks;
    for (std::size_t m = 0; m < separate.specs.size(); ++m) {
      blocks.push_back(separate.gradient(m, step, rank));
    }
    return Stacked(blocks, padding, kNaN);
  };
  return model;
}

MuonOptions Muon(Scale scale = Scale::kOriginal) {
  MuonOptions muon;
  muon.lr = 0.05;
  muon.momentum = 0.9;
  muon.weight_decay = 0.1;
  muon.scale = scale;
  return muon;
}

using Parameters = std::tuple<int, Way, GradientKind>;

std::string NameOfCase(const ::testing::TestParamInfo<Parameters>& tested) {
  const auto& [world, way, kind] = tested.param;
  return std::to_string(world) + "_" + std::string(Name(way.strategy)) + "_" +
         std::string(Name(way.layout)) + "_" + std::string(Name(kind));
}

class EveryWay : public ::testing::TestWithParam<Parameters> {
 protected:
  // Trains `separate` on copies everywhere, and the same as one matrix in the tested way.
  void EqualBits(const Model& separate, std::int64_t padding_rows,
                 const std::vector<std::int64_t>& shard_rows) {
    const auto& [world, way, kind] = GetParam();
    constexpr int kSteps = 5;
    RuntimeOptions options = OptionsFor({1, world}, Strategy::kReplicated);
    const Trained expected = Train(options, separate, kSteps);
    options.strategy = way.strategy;
    const Model fused = Fused(separate, padding_rows, way.layout, shard_rows);
    const std::int64_t padding = padding_rows * fused.specs[0].cols;
    options.limits.passes = 2;
    for (const bool each : {false, true}) {
      options.limits.reduce_each_pass = each;
      const Trained trained = Train(options, fused, kSteps);
      // Bit for bit, and zero where there is padding: NaN would not be equal.
      EXPECT_EQ(trained.weights[0], Stacked(expected.weights, padding, 0));
      if (std::holds_alternative<MuonOptions>(fused.specs[0].rule)) {
        EXPECT_EQ(trained.states[0], Stacked(expected.states, padding, 0));
        EXPECT_EQ(trained.ns_runs, kSteps * (way.strategy == Strategy::kOwner ? 1 : world));
      }
    }
  }
  // By default, and so that blocks, and a block from its padding, are cut and a rank has nothing.
  std::vector<std::vector<std::int64_t>> Cuts(std::int64_t rows) const {
    const auto& [world, way, kind] = GetParam();
    if (way.layout == Layout::kReplicated) return {{}};
    if (world == 1) return {{}};
    if (world == 2) return {{}, {rows - 1, 1}, {rows / 3, rows - rows / 3}};
    return {{}, {rows / 5, rows - rows / 5 - 3, 3}, {rows - 5, 0, 5}};
  }
};

TEST_P(EveryWay, Case08PaddedRowsTrainAsIfTheyWereNotThere) {
  const auto& [world, way, kind] = GetParam();
  for (const Scale scale : {Scale::kOriginal, Scale::kMatchRmsAdamW}) {
    const Model separate = Separate({6}, 4, Muon(scale), kind);
    for (const auto& cut : Cuts(8)) EqualBits(separate, 2, cut);
  }
}

TEST_P(EveryWay, Case08PaddedRowsOfAdamW) {
  const auto& [world, way, kind] = GetParam();
  const Model separate = Separate({6}, 4, AdamWOptions{.lr = 0.01, .weight_decay = 0.1}, kind);
  for (const auto& cut : Cuts(8)) EqualBits(separate, 2, cut);
}

TEST_P(EveryWay, Case09RowBlocksAreMatricesOfTheirOwn) {
  const auto& [world, way, kind] = GetParam();
  const Model separate = Separate({16, 8, 8, 16}, 32, Muon(), kind);
  for (const auto& cut : Cuts(48)) EqualBits(separate, 0, cut);
}

TEST_P(EveryWay, Case09OddBlocksWithPadding) {
  const auto& [world, way, kind] = GetParam();
  const Model separate = Separate({3, 1, 9, 2}, 5, Muon(Scale::kMatchRmsAdamW), kind);
  for (const auto& cut : Cuts(18)) EqualBits(separate, 3, cut);
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, EveryWay,
    ::testing::Combine(::testing::Values(1, 2, 3),
                       ::testing::Values(Way{Strategy::kReplicated, Layout::kReplicated},
                                         Way{Strategy::kGather, Layout::kSharded},
                                         Way{Strategy::kOwner, Layout::kReplicated},
                                         Way{Strategy::kOwner, Layout::kSharded}),
                       ::testing::Values(GradientKind::kLocal, GradientKind::kReduced)),
    NameOfCase);

// Case 9 on a grid of two levels.
TEST(RowBlocks, Case09OnTwoNodes) {
  const Model separate = Separate({16, 8, 8, 16}, 32, Muon(), GradientKind::kReduced);
  const Trained expected = Train(OptionsFor({1, 1}), separate, 3);
  for (const Layout layout : {Layout::kReplicated, Layout::kSharded}) {
    const Trained trained = Train(OptionsFor({2, 2}), Fused(separate, 2, layout), 3);
    EXPECT_EQ(trained.weights[0], Stacked(expected.weights, 64, 0));
  }
}

// Case 8, in numbers: a gradient of ones has rank 1, so that its direction is 0.69644 / ||G||.
TEST(RowBlocks, Case08TheScaleIsOfSixRows) {
  for (const auto& [scale, factor] : {std::pair{Scale::kOriginal, std::sqrt(6.0 / 4)},
                                      std::pair{Scale::kMatchRmsAdamW, 0.2 * std::sqrt(6.0)}}) {
    MuonOptions muon = Muon(scale);
    muon.weight_decay = 0;
    Model model;
    MatrixSpec spec{.name = "w", .rows = 8, .cols = 4};
    spec.padding_rows = 2;
    spec.rule = muon;
    model.specs = {spec};
    model.weights = {Matrix(32, 0.0f)};
    model.gradient = [](std::size_t, int, int) {
      Matrix gradient(32, 1.0f);
      std::fill(gradient.begin() + 24, gradient.end(), std::numeric_limits<float>::infinity());
      return gradient;
    };
    const Matrix weight = Train(OptionsFor({1, 1}), model, 1).weights[0];
    for (int i = 0; i < 24; ++i) {
      EXPECT_NEAR(weight[i], -muon.lr * factor * 0.69644 / std::sqrt(24.0), 1e-6);
    }
    EXPECT_THAT(Matrix(weight.begin() + 24, weight.end()), Each(0.0f));
  }
}

// The norm that clips is that of the rows that count: of all of them, in whatever blocks. Over
// shards it is summed in another order, so that the last bits may differ.
TEST(RowBlocks, ClippingIsByTheNormWithoutPadding) {
  const Model separate = Separate({3, 1, 9, 2}, 5, Muon(), GradientKind::kLocal);
  RuntimeOptions options = OptionsFor({1, 3});
  options.max_gradient_norm = 0.5;
  const Trained expected = Train(options, separate, 3);
  const Matrix whole = Stacked(expected.states, 15, 0);
  EXPECT_GT(*std::max_element(whole.begin(), whole.end()), 0);
  for (const Layout layout : {Layout::kReplicated, Layout::kSharded}) {
    const Trained trained = Train(options, Fused(separate, 3, layout), 3);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(trained.states[0][i], whole[i], 1e-6) << Name(layout) << " " << i;
    }
  }
  // The limit binds: without it momentum is another.
  options.max_gradient_norm = 0;
  EXPECT_NE(Train(options, separate, 3).states, expected.states);
}

// Policies are of the whole matrix: one bad element in one block leaves all blocks alone.
TEST(RowBlocks, APolicySkipsAllBlocks) {
  const Model separate = Separate({16, 8}, 6, Muon(), GradientKind::kLocal);
  Model fused = Fused(separate, 0, Layout::kReplicated);
  const auto gradient = fused.gradient;
  fused.gradient = [gradient](std::size_t m, int step, int rank) {
    Matrix whole = gradient(m, step, rank);
    if (rank == 1) whole.back() = kNaN;
    return whole;
  };
  RuntimeOptions options = OptionsFor({1, 2});
  options.non_finite = NonFinite::kSkipMatrix;
  EXPECT_EQ(Train(options, fused, 2).weights[0], fused.weights[0]);
}

// Places are counted in elements of the weight's own type.
TEST(RowBlocks, BlocksOfBf16Weights) {
  const auto bf16 = [](const Matrix& values) {
    std::vector<std::uint16_t> bits;
    for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value) >> 16);
    return bits;
  };
  const std::vector<std::int64_t> rows = {3, 5};
  auto weights = bf16(Normal(40, kSeed, 1)), gradients = bf16(Normal(40, kSeed, 2));
  auto fused_weights = weights, fused_gradients = gradients;
  fused_weights.resize(50);
  fused_gradients.resize(50, 0x7fc0);  // NaN
  RunWorld({.grid = {1, 1}}, [&](testing::Rank rank) {
    auto runtime = *Runtime::Create(OptionsFor({1, 1}), rank.device, rank.transport);
    MatrixSpec spec{.name = "a", .rows = 3, .cols = 5, .dtype = DType::kBF16};
    spec.rule = Muon(Scale::kMatchRmsAdamW);
    spec.weight = weights.data();
    ASSERT_TRUE(runtime->AddMatrix(spec).ok());
    spec.name = "b";
    spec.rows = 5;
    spec.weight = weights.data() + 15;
    ASSERT_TRUE(runtime->AddMatrix(spec).ok());
    spec.name = "fused";
    spec.rows = 10;
    spec.padding_rows = 2;
    spec.row_blocks = rows;
    spec.weight = fused_weights.data();
    ASSERT_TRUE(runtime->AddMatrix(spec).ok());
    ASSERT_TRUE(runtime->Commit().ok());
    ASSERT_TRUE(runtime->Submit({.matrix = 2, .gradient = fused_gradients.data()}).ok());
    ASSERT_TRUE(runtime->Submit({.matrix = 1, .gradient = gradients.data() + 15}).ok());
    ASSERT_TRUE(runtime->Submit({.matrix = 0, .gradient = gradients.data()}).ok());
    ASSERT_TRUE(runtime->Step().ok());
    EXPECT_EQ(runtime->WaitForStep(), absl::OkStatus());
  });
  EXPECT_NE(weights, bf16(Normal(40, kSeed, 1)));
  weights.resize(50);
  EXPECT_EQ(fused_weights, weights);
}

TEST(RowBlocks, CostsAreThoseOfTheBlocks) {
  const auto flops = [](const Model& model) {
    const auto plan = PlanFor(model.specs, OptionsFor({1, 2}));
    EXPECT_TRUE(plan.ok()) << plan.status();
    double sum = 0;
    for (const PlanMatrix& matrix : plan->matrices) sum += matrix.flops;
    return sum;
  };
  for (const Rule& rule : {Rule(Muon()), Rule(AdamWOptions{})}) {
    const bool muon = std::holds_alternative<MuonOptions>(rule);
    const Model separate =
        Separate(muon ? std::vector<std::int64_t>{16, 8, 8, 16} : std::vector<std::int64_t>{48}, 32,
                 rule, GradientKind::kLocal);
    EXPECT_GT(flops(separate), 0);
    EXPECT_EQ(flops(Fused(separate, 0, Layout::kReplicated)), flops(separate));
    EXPECT_EQ(flops(Fused(separate, 16, Layout::kSharded)), flops(separate));
  }
}

TEST(RowBlocks, RowsThatDoNotFitAreRefused) {
  const auto refusal = [](void (*change)(MatrixSpec&)) {
    MatrixSpec spec{.name = "qkv", .rows = 48, .cols = 32};
    change(spec);
    const absl::Status status = PlanFor({spec}, OptionsFor({1, 2})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("matrix 'qkv': "));
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](MatrixSpec& s) { s.padding_rows = -1; }),
              HasSubstr("padding_rows is -1, not 0 to its 48 rows"));
  EXPECT_THAT(refusal([](MatrixSpec& s) { s.padding_rows = 49; }),
              HasSubstr("padding_rows is 49, not 0 to its 48 rows"));
  EXPECT_THAT(refusal([](MatrixSpec& s) {
                s.row_blocks = {16, 8, 8};
              }),
              HasSubstr("row_blocks add up to 32, not to its 48 rows"));
  EXPECT_THAT(refusal([](MatrixSpec& s) {
                s.row_blocks = {16, 8, 8, 16};
                s.padding_rows = 1;
              }),
              HasSubstr("row_blocks add up to more than its 47 rows without padding"));
  EXPECT_THAT(refusal([](MatrixSpec& s) {
                s.row_blocks = {std::numeric_limits<std::int64_t>::max(), 48};
              }),
              HasSubstr("more than its 48 rows"));
  EXPECT_THAT(refusal([](MatrixSpec& s) {
                s.row_blocks = {48, 0};
              }),
              HasSubstr("row_blocks has a block of 0 rows"));
  EXPECT_THAT(refusal([](MatrixSpec& s) {
                s.row_blocks = {-8, 56};
              }),
              HasSubstr("row_blocks has a block of -8 rows"));
  EXPECT_THAT(refusal([](MatrixSpec& s) {
                s.row_blocks = {24, 24};
                s.rule = AdamWOptions{};
              }),
              HasSubstr("row_blocks are for Muon"));
  EXPECT_THAT(refusal([](MatrixSpec& s) {
                s.padding_rows = 8;
                s.rule = CustomRule{};
              }),
              HasSubstr("padding_rows are for Muon and AdamW"));
}

TEST(RowBlocks, RanksThatDifferAreToldWhere) {
  std::vector<std::string> messages(2);
  RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
    Matrix weight(48, 0.0f);
    auto runtime = *Runtime::Create(OptionsFor({1, 2}), rank.device, rank.transport);
    MatrixSpec spec{.name = "qkv", .rows = 12, .cols = 4, .weight = weight.data()};
    spec.row_blocks = {4, 4, 4};
    if (rank.rank == 1) spec.row_blocks = {4, 2, 6};
    ASSERT_TRUE(runtime->AddMatrix(spec).ok());
    messages[rank.rank] = std::string(runtime->Commit().message());
  });
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_THAT(messages[0],
              AllOf(HasSubstr("'qkv'"), HasSubstr("rank 0 has row_blocks[1] 4, rank 1 has 2")));
}

}  // namespace
}  // namespace weft
