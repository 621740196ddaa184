// Matrices whose Newton-Schulz runs on parts: fused QKV and gate/up, heads, query groups, stacks of
// experts. Every strategy and layout against serial float64 of each part by itself.
#include "runtime/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/model.h"
#include "tests/support/pinned.h"
#include "tests/support/property.h"
#include "tests/support/seed.h"
#include "tests/support/way.h"
#include "tests/support/world.h"
#include "tools/reference/update.h"
#include "weft/work.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Normal;
using testing::OptionsFor;
using testing::RunWorld;
using testing::Way;

constexpr std::uint64_t kSeed = 27;
using Blocks = std::vector<std::int64_t>;

MuonOptions Muon(Scale scale = Scale::kOriginal) {
  MuonOptions muon;
  muon.lr = 0.05;
  muon.momentum = 0.9;
  muon.weight_decay = 0.1;
  muon.scale = scale;
  return muon;
}

MatrixSpec SpecOf(std::string name, std::int64_t rows, std::int64_t cols, Blocks row_blocks,
                  Blocks column_blocks = {}, std::int64_t row_groups = 1) {
  MatrixSpec spec{.name = std::move(name), .rows = rows, .cols = cols};
  spec.row_blocks = std::move(row_blocks);
  spec.column_blocks = std::move(column_blocks);
  spec.row_groups = row_groups;
  spec.rule = Muon();
  return spec;
}

std::int64_t SizeOf(const MatrixSpec& spec) { return spec.rows * spec.cols; }

// Where the elements of each part are, row by row: of each block of rows in all groups, and of each
// block of columns.
struct PartPlaces {
  std::int64_t rows = 0, cols = 0;
  std::vector<std::int64_t> places;
};
std::vector<PartPlaces> PlacesOf(const MatrixSpec& spec) {
  const std::int64_t rows = spec.rows - spec.padding_rows;
  const Blocks down = spec.row_blocks.empty() ? Blocks{rows} : spec.row_blocks;
  const Blocks across = spec.column_blocks.empty() ? Blocks{spec.cols} : spec.column_blocks;
  std::vector<PartPlaces> parts;
  for (std::size_t r = 0; r < down.size(); ++r) {
    for (std::size_t c = 0; c < across.size(); ++c) {
      const std::int64_t top = std::accumulate(down.begin(), down.begin() + r, std::int64_t{0});
      const std::int64_t left =
          std::accumulate(across.begin(), across.begin() + c, std::int64_t{0});
      PartPlaces part{down[r] * spec.row_groups, across[c], {}};
      for (std::int64_t group = 0; group < spec.row_groups; ++group) {
        for (std::int64_t i = 0; i < down[r]; ++i) {
          const std::int64_t row = group * (rows / spec.row_groups) + top + i;
          for (std::int64_t j = 0; j < across[c]; ++j) {
            part.places.push_back(row * spec.cols + left + j);
          }
        }
      }
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

// Per element; 1 where a matrix has none.
using Factors = std::vector<float>;

struct Model {
  std::vector<MatrixSpec> specs;
  std::vector<Factors> factors;  // of the gradients

  void Add(MatrixSpec spec) {
    factors.emplace_back(SizeOf(spec), 1.0f);
    specs.push_back(std::move(spec));
  }
  std::vector<float> Weight(std::size_t m) const { return Normal(SizeOf(specs[m]), kSeed, 1, m); }
  std::vector<float> Gradient(std::size_t m, int step, int rank) const {
    std::vector<float> gradient =
        Normal(SizeOf(specs[m]), kSeed, 2 + static_cast<std::uint64_t>(step), m,
               static_cast<std::uint64_t>(rank));
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] *= factors[m][i];
    return gradient;
  }
  std::vector<float> Mean(std::size_t m, int step, int world) const {
    std::vector<float> mean(SizeOf(specs[m]), 0.0f);
    for (int rank = 0; rank < world; ++rank) {
      const std::vector<float> gradient = Gradient(m, step, rank);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i];
    }
    for (float& value : mean) value /= static_cast<float>(world);
    return mean;
  }
};

constexpr int kSteps = 3;

// Each part by itself, in serial float64. Padding stays as it is.
std::vector<double> Expected(const Model& model, std::size_t m, int world) {
  const MatrixSpec& spec = model.specs[m];
  const auto& muon = std::get<MuonOptions>(spec.rule);
  reference::MuonSettings settings;
  settings.lr = muon.lr;
  settings.momentum = muon.momentum;
  settings.weight_decay = muon.weight_decay;
  settings.match_rms_adamw = muon.scale == Scale::kMatchRmsAdamW;
  settings.iterations.assign(5, {3.4445, -4.7750, 2.0315});
  const std::vector<float> initial = model.Weight(m);
  std::vector<double> result(initial.begin(), initial.end());
  for (const PartPlaces& part : PlacesOf(spec)) {
    std::vector<double> weight, momentum(part.places.size(), 0.0);
    for (const std::int64_t place : part.places) weight.push_back(initial[place]);
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> mean = model.Mean(m, step, world);
      std::vector<double> gradient;
      for (const std::int64_t place : part.places) gradient.push_back(mean[place]);
      reference::MuonStep(settings, part.rows, part.cols, gradient, momentum, weight);
    }
    for (std::size_t i = 0; i < weight.size(); ++i) result[part.places[i]] = weight[i];
  }
  return result;
}

std::vector<float> RowsOf(const MatrixSpec& spec, const std::vector<float>& whole, int rank) {
  if (spec.layout != Layout::kSharded) return whole;
  const auto& shards = spec.shard_rows;
  const auto begin =
      whole.begin() +
      std::accumulate(shards.begin(), shards.begin() + rank, std::int64_t{0}) * spec.cols;
  return {begin, begin + shards[rank] * spec.cols};
}

// The last weights of all matrices, whole; every copy has the same bits.
std::vector<std::vector<float>> Train(const Model& model, const RuntimeOptions& options) {
  const int world = options.topology.grid.size();
  const std::size_t count = model.specs.size();
  std::vector<std::vector<std::vector<float>>> found(world);
  RunWorld({.grid = options.topology.grid}, [&](testing::Rank rank) {
    std::vector<std::vector<float>>& own = found[rank.rank];
    std::vector<std::unique_ptr<testing::Pinned>> pins;
    auto runtime = *Runtime::Create(options, rank.device, rank.transport);
    for (std::size_t m = 0; m < count; ++m) {
      own.push_back(RowsOf(model.specs[m], model.Weight(m), rank.rank));
    }
    for (std::size_t m = 0; m < count; ++m) {
      MatrixSpec spec = model.specs[m];
      spec.weight = own[m].data();
      pins.push_back(std::make_unique<testing::Pinned>(spec.weight, own[m].size() * sizeof(float)));
      const auto added = runtime->AddMatrix(spec);
      ASSERT_TRUE(added.ok()) << added.status();
    }
    const absl::Status committed = runtime->Commit();
    ASSERT_TRUE(committed.ok()) << committed;
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t m = count; m-- > 0;) {
        const MatrixSpec& spec = model.specs[m];
        const bool reduced = spec.gradient == GradientKind::kReduced;
        const std::vector<float> gradient =
            reduced ? RowsOf(spec, model.Mean(m, step, world), rank.rank)
                    : model.Gradient(m, step, rank.rank);
        const auto job =
            runtime->Submit({.matrix = static_cast<MatrixId>(m), .gradient = gradient.data()});
        ASSERT_TRUE(job.ok()) << job.status();
      }
      ASSERT_TRUE(runtime->Step().ok());
      const absl::Status done = runtime->WaitForStep();
      ASSERT_TRUE(done.ok()) << done;
    }
    if (model.specs[0].layout != Layout::kOwned) return;
    const auto stream = rank.device.CreateStream("reader");
    for (std::size_t m = 0; m < count; ++m) {
      const int layer = model.specs[m].layer;
      ASSERT_TRUE(runtime->ParameterNeeded(layer, *stream).ok());
      ASSERT_TRUE(stream->Synchronize(absl::Minutes(2)).ok());
      const auto* weight = static_cast<const float*>(*runtime->Parameter(static_cast<MatrixId>(m)));
      own[m].assign(weight, weight + SizeOf(model.specs[m]));
      ASSERT_TRUE(runtime->ParameterReleased(layer).ok());
    }
  });
  std::vector<std::vector<float>> weights;
  for (std::size_t m = 0; m < count; ++m) {
    std::vector<float> whole;
    for (int rank = 0; rank < world; ++rank) {
      const std::vector<float>& part = found[rank].at(m);
      if (model.specs[m].layout == Layout::kSharded) {
        whole.insert(whole.end(), part.begin(), part.end());
      } else if (rank == 0) {
        whole = part;
      } else {
        EXPECT_EQ(part, whole) << "rank " << rank;
      }
    }
    weights.push_back(std::move(whole));
  }
  return weights;
}

void ExpectReference(const Model& model, const RuntimeOptions& options) {
  const auto weights = Train(model, options);
  for (std::size_t m = 0; m < weights.size(); ++m) {
    const MatrixSpec& spec = model.specs[m];
    const std::vector<double> expected = Expected(model, m, options.topology.grid.size());
    ASSERT_EQ(weights[m].size(), expected.size());
    for (const PartPlaces& part : PlacesOf(spec)) {
      double error = 0, norm = 0;
      for (const std::int64_t place : part.places) {
        error += std::pow(weights[m][place] - expected[place], 2);
        norm += std::pow(expected[place], 2);
      }
      EXPECT_LE(std::sqrt(error), 3e-5 * std::sqrt(norm))
          << spec.name << ", a part of " << part.rows << " x " << part.cols;
    }
    const std::vector<float> initial = model.Weight(m);
    for (auto i = static_cast<std::size_t>((spec.rows - spec.padding_rows) * spec.cols);
         i < initial.size(); ++i) {
      EXPECT_EQ(weights[m][i], initial[i]) << spec.name << ", padding";
    }
  }
}

// All that the field has, each in its own layer.
Model Usual(Scale scale) {
  Model model;
  model.Add(SpecOf("fused qkv", 34, 16, {24, 5, 5}));
  model.Add(SpecOf("gate up", 20, 12, EqualBlocks(2, 10)));
  model.Add(SpecOf("heads", 12, 10, EqualBlocks(4, 3)));
  model.Add(SpecOf("output heads", 10, 12, {}, EqualBlocks(4, 3)));
  model.Add(SpecOf("fused columns", 12, 13, {}, {7, 3, 3}));
  model.Add(SpecOf("blocks of both", 10, 12, {6, 4}, {5, 5, 2}));
  model.Add(SpecOf("query groups", 18, 12, {4, 2, 2}, {}, 2));
  model.specs.back().padding_rows = 2;
  model.Add(SpecOf("grouped heads", 18, 7, {2, 2, 2}, {4, 3}, 3));
  model.Add(SpecOf("whole", 3, 12, {}));  // of a part's shape
  // Case 7: one scaled by 100, one zero.
  model.Add(SpecOf("experts", 24, 12, EqualBlocks(3, 8)));
  Factors& factors = model.factors.back();
  std::fill(factors.begin() + 96, factors.begin() + 192, 100.0f);
  std::fill(factors.begin() + 192, factors.end(), 0.0f);
  for (std::size_t m = 0; m < model.specs.size(); ++m) {
    model.specs[m].layer = static_cast<int>(m);
    model.specs[m].rule = Muon(scale);
  }
  return model;
}

// By default, and so that shards begin and end inside of parts and one has nothing.
Blocks Shards(const MatrixSpec& spec, int world, bool uneven) {
  if (!uneven || world != 4) return DefaultShardRows(spec.rows, world);
  const std::int64_t first = spec.rows / 5 + 1;
  return {first, spec.rows - first - 1, 0, 1};
}

class EveryPart : public ::testing::TestWithParam<testing::WayOnGrid> {};

TEST_P(EveryPart, EqualsTheSerialReference) {
  const auto& [grid, way, kind] = GetParam();
  for (const bool uneven : {false, true}) {
    if (uneven && way.layout != Layout::kSharded) continue;
    Model model = Usual(uneven ? Scale::kMatchRmsAdamW : Scale::kOriginal);
    for (MatrixSpec& spec : model.specs) {
      spec.layout = way.layout;
      spec.gradient = kind;
      if (way.layout == Layout::kSharded) spec.shard_rows = Shards(spec, grid.size(), uneven);
    }
    ExpectReference(model, OptionsFor(grid, way.strategy));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Grids, EveryPart,
    ::testing::Combine(::testing::Values(ProcessGrid{1, 1}, ProcessGrid{2, 2}),
                       ::testing::Values(Way{Strategy::kReplicated, Layout::kReplicated},
                                         Way{Strategy::kGather, Layout::kSharded},
                                         Way{Strategy::kOwner, Layout::kReplicated},
                                         Way{Strategy::kOwner, Layout::kSharded},
                                         Way{Strategy::kOwner, Layout::kOwned},
                                         Way{Strategy::kNodeLocal, Layout::kReplicated},
                                         Way{Strategy::kNodeLocal, Layout::kSharded}),
                       ::testing::Values(GradientKind::kLocal, GradientKind::kReduced)),
    testing::NameOfWayOnGrid);

// Any blocks, groups, padding, shards and way.
TEST(Parts, RandomOnesEqualTheSerialReference) {
  std::mt19937_64 random(testing::Seed());
  const auto any = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  const auto blocks = [&] {
    Blocks sizes(static_cast<std::size_t>(any(0, 4)));
    for (std::int64_t& size : sizes) size = any(1, 7);
    return sizes;
  };
  const std::vector<Way> ways = {
      {Strategy::kReplicated, Layout::kReplicated}, {Strategy::kGather, Layout::kSharded},
      {Strategy::kOwner, Layout::kSharded},         {Strategy::kOwner, Layout::kOwned},
      {Strategy::kNodeLocal, Layout::kReplicated},  {Strategy::kNodeLocal, Layout::kSharded}};
  for (int trial = 0; trial < (testing::kSanitized ? 4 : 12); ++trial) {
    const Way way = ways[static_cast<std::size_t>(any(0, 5))];
    const ProcessGrid grid{static_cast<int>(any(1, 2)), static_cast<int>(any(1, 3))};
    Model model;
    for (int m = 0; m < 4; ++m) {
      MatrixSpec spec = SpecOf("m" + std::to_string(m), any(1, 20), any(1, 20), blocks(), blocks());
      if (!spec.row_blocks.empty()) {
        spec.row_groups = any(1, 3);
        spec.rows = spec.row_groups * std::accumulate(spec.row_blocks.begin(),
                                                      spec.row_blocks.end(), std::int64_t{0});
      }
      if (!spec.column_blocks.empty()) {
        spec.cols =
            std::accumulate(spec.column_blocks.begin(), spec.column_blocks.end(), std::int64_t{0});
      }
      spec.padding_rows = any(0, 2);
      spec.rows += spec.padding_rows;
      spec.rule = Muon(any(0, 1) == 0 ? Scale::kOriginal : Scale::kMatchRmsAdamW);
      spec.layout = way.layout;
      spec.layer = m;
      spec.gradient = any(0, 1) == 0 ? GradientKind::kLocal : GradientKind::kReduced;
      if (way.layout == Layout::kSharded) {
        std::int64_t left = spec.rows;
        for (int rank = 0; rank + 1 < grid.size(); ++rank) {
          spec.shard_rows.push_back(any(0, left));
          left -= spec.shard_rows.back();
        }
        spec.shard_rows.push_back(left);
      }
      model.Add(spec);
    }
    SCOPED_TRACE("trial " + std::to_string(trial));
    ExpectReference(model, OptionsFor(grid, way.strategy));
  }
}

// One part is no part: the same plan, with its batches, so the same bits.
TEST(Parts, OnePartIsTheWholeMatrix) {
  const auto plan = [](const MatrixSpec& like) {
    std::vector<MatrixSpec> specs(6, like);
    for (std::size_t m = 0; m < specs.size(); ++m) specs[m].name = "m" + std::to_string(m);
    return *PlanFor(specs, OptionsFor({1, 2}));
  };
  const Plan whole = plan(SpecOf("", 16, 8, {}));
  EXPECT_FALSE(whole.sets.empty());
  for (const MatrixSpec& spec : {SpecOf("", 16, 8, {16}), SpecOf("", 16, 8, {}, {8}),
                                 SpecOf("", 16, 8, {16}, {8}), SpecOf("", 16, 8, {4}, {}, 4)}) {
    EXPECT_EQ(Fingerprint(plan(spec)), Fingerprint(whole));
  }
  EXPECT_NE(Fingerprint(plan(SpecOf("", 16, 8, {8, 8}))), Fingerprint(whole));
}

// Columns as if they were matrices registered alone; rows are those of row_blocks_test.cc.
TEST(Parts, ColumnBlocksTrainAsMatricesOfTheirOwn) {
  for (const Blocks& widths : {Blocks{6, 3, 3, 8}, EqualBlocks(3, 4)}) {
    const std::int64_t cols = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
    Model fused;
    fused.Add(SpecOf("fused", 9, cols, {}, widths));
    const auto weights = Train(fused, OptionsFor({1, 1}));
    std::int64_t left = 0;
    for (const std::int64_t width : widths) {
      RunWorld({.grid = {1, 1}}, [&](testing::Rank rank) {
        const auto columns = [&](const std::vector<float>& whole) {
          std::vector<float> taken;
          for (std::int64_t i = 0; i < 9; ++i) {
            const auto row = whole.begin() + i * cols + left;
            taken.insert(taken.end(), row, row + width);
          }
          return taken;
        };
        std::vector<float> weight = columns(fused.Weight(0));
        auto runtime = *Runtime::Create(OptionsFor({1, 1}), rank.device, rank.transport);
        MatrixSpec spec = SpecOf("alone", 9, width, {});
        spec.weight = weight.data();
        ASSERT_TRUE(runtime->AddMatrix(spec).ok());
        ASSERT_TRUE(runtime->Commit().ok());
        for (int step = 0; step < kSteps; ++step) {
          const std::vector<float> gradient = columns(fused.Gradient(0, step, 0));
          ASSERT_TRUE(runtime->Submit({.matrix = 0, .gradient = gradient.data()}).ok());
          ASSERT_TRUE(runtime->Step().ok());
          ASSERT_TRUE(runtime->WaitForStep().ok());
        }
        EXPECT_EQ(weight, columns(weights[0])) << width << " from " << left;
      });
      left += width;
    }
  }
}

RC_GTEST_PROP(Parts, PiecesHaveEachElementOfARangeOnceWithItsPartsShape, ()) {
  const auto blocks = [] {
    Blocks sizes(*rc::gen::inRange(0, 4));
    for (std::int64_t& size : sizes) size = *rc::gen::inRange(1, 4);
    return sizes;
  };
  MatrixSpec spec = SpecOf("m", 6, 7, blocks(), blocks());
  if (!spec.row_blocks.empty()) {
    spec.row_groups = *rc::gen::inRange(1, 4);
    spec.rows = spec.row_groups *
                std::accumulate(spec.row_blocks.begin(), spec.row_blocks.end(), std::int64_t{0});
  }
  if (!spec.column_blocks.empty()) {
    spec.cols =
        std::accumulate(spec.column_blocks.begin(), spec.column_blocks.end(), std::int64_t{0});
  }
  spec.padding_rows = *rc::gen::inRange(0, 3);
  spec.rows += spec.padding_rows;
  const std::int64_t first = *rc::gen::inRange<std::int64_t>(0, spec.rows + 1);
  const std::int64_t rows = *rc::gen::inRange<std::int64_t>(0, spec.rows - first + 1);
  using Shape = std::pair<std::int64_t, std::int64_t>;
  std::vector<std::vector<Shape>> expected(rows * spec.cols), found(rows * spec.cols);
  for (const PartPlaces& part : PlacesOf(spec)) {
    for (const std::int64_t place : part.places) {
      const std::int64_t here = place - first * spec.cols;
      if (here < 0 || here >= rows * spec.cols) continue;
      expected[here].emplace_back(part.rows, part.cols);
    }
  }
  for (const runtime::Piece& piece : runtime::PiecesOf(spec, first, rows)) {
    for (std::int64_t i = 0; i < piece.rows; ++i) {
      for (std::int64_t j = 0; j < piece.cols; ++j) {
        found[(piece.row + i) * spec.cols + piece.col + j].emplace_back(piece.part_rows,
                                                                        piece.part_cols);
      }
    }
  }
  RC_ASSERT(found == expected);
}

// One apply for all heads.
TEST(Parts, EqualPartsAreOnePiece) {
  const auto pieces = [](const MatrixSpec& spec) {
    return runtime::PiecesOf(spec, 1, spec.rows - 1).size();
  };
  EXPECT_EQ(pieces(SpecOf("m", 64, 5, EqualBlocks(16, 4))), 1u);
  EXPECT_EQ(pieces(SpecOf("m", 5, 64, {}, EqualBlocks(16, 4))), 1u);
  EXPECT_EQ(pieces(SpecOf("m", 20, 5, {10, 5, 5})), 2u);
  EXPECT_EQ(pieces(SpecOf("m", 24, 5, {2, 2, 2}, {}, 4)), 1u);
}

// What owners are balanced by.
TEST(Parts, CostsAreThoseOfTheParts) {
  const auto flops = [](std::int64_t rows, std::int64_t cols) {
    return CostOf(Muon().newton_schulz, rows, cols)->symmetric_flops;
  };
  const std::vector<MatrixSpec> specs = {
      SpecOf("qkv", 48, 32, {32, 8, 8}), SpecOf("heads", 48, 32, {}, EqualBlocks(4, 8)),
      SpecOf("groups", 48, 32, {8, 4, 4}, {}, 3), SpecOf("experts", 48, 32, EqualBlocks(3, 16))};
  const std::vector<double> expected = {flops(32, 32) + 2 * flops(8, 32), 4 * flops(48, 8),
                                        flops(24, 32) + 2 * flops(12, 32), 3 * flops(16, 32)};
  const Plan plan = *PlanFor(specs, OptionsFor({1, 2}));
  const auto work = *OwnedWorkOf(specs);
  for (std::size_t m = 0; m < specs.size(); ++m) {
    EXPECT_DOUBLE_EQ(plan.matrices[m].flops, expected[m]) << specs[m].name;
    EXPECT_EQ(plan.matrices[m].batch, -1) << specs[m].name;
    EXPECT_DOUBLE_EQ(work[m]->parts * work[m]->work.flops, expected[m]) << specs[m].name;
    EXPECT_FALSE(work[m]->batches) << specs[m].name;
  }
  // Equal parts cost what a batch of matrices of their shape does.
  const CostModel model(OptionsFor({1, 2}).topology);
  for (const auto& [m, parts, rows, cols] : {std::tuple{1, 4, 48, 8}, std::tuple{3, 3, 16, 32}}) {
    const ComputeWork one = *NewtonSchulzWork(Muon().newton_schulz, rows, cols);
    EXPECT_EQ(work[m]->parts, parts);
    EXPECT_EQ(work[m]->work.shape, one.shape);
    EXPECT_EQ(MakeBatchTables(model, {&work[m], 1}).batch_costs[0],
              std::vector<double>{model.Compute(one, parts).seconds});
  }
  // Unequal ones a run for each shape.
  EXPECT_EQ(work[0]->parts, 1);
  EXPECT_EQ(work[0]->work.launches, NewtonSchulzWork(Muon().newton_schulz, 32, 32)->launches +
                                        NewtonSchulzWork(Muon().newton_schulz, 8, 32)->launches);
}

TEST(Parts, PartsThatDoNotFitAreRefused) {
  struct Bad {
    MatrixSpec spec;
    const char* sentence;
  };
  MatrixSpec adamw = SpecOf("", 48, 32, {}, {16, 16});
  adamw.rule = AdamWOptions{};
  MatrixSpec padded = SpecOf("", 48, 32, {12, 12}, {}, 2);
  padded.padding_rows = 1;
  const Bad cases[] = {
      {SpecOf("", 48, 32, {}, {16, 8}), "column_blocks add up to 24, not to its 32 columns"},
      {SpecOf("", 48, 32, {}, {16, 17}), "column_blocks add up to more than its 32 columns"},
      {SpecOf("", 48, 32, {}, {32, 0}), "column_blocks has a block of 0 columns"},
      {SpecOf("", 48, 32, {}, {-1, 33}), "column_blocks has a block of -1 columns"},
      {SpecOf("", 48, 32, {}, EqualBlocks(0, 8)), "column_blocks has a block of 0 columns"},
      {SpecOf("", 48, 32, EqualBlocks(5, 8)),
       "row_blocks add up to 40, not to its 48 rows without padding"},
      {SpecOf("", 48, 32, EqualBlocks(-1, 8)), "row_blocks has a block of 0 rows"},
      {SpecOf("", 48, 32, {24, 24}, {}, 0), "row_groups is 0, not 1 or more"},
      {SpecOf("", 48, 32, {24, 24}, {}, -2), "row_groups is -2, not 1 or more"},
      {SpecOf("", 48, 32, {}, {}, 2), "row_groups are given without row_blocks"},
      {SpecOf("", 48, 32, {4, 4}, {}, 5),
       "row_groups is 5, which does not divide its 48 rows without padding"},
      {SpecOf("", 48, 32, {24, 24}, {}, 2),
       "row_blocks add up to more than the 24 rows of each of its 2 row_groups"},
      {SpecOf("", 48, 32, {12, 8}, {}, 2),
       "row_blocks add up to 20, not to the 24 rows of each of its 2 row_groups"},
      {padded, "row_groups is 2, which does not divide its 47 rows without padding"},
      {adamw, "column_blocks are for Muon, and its rule is another"},
  };
  for (const Bad& bad : cases) {
    MatrixSpec spec = bad.spec;
    spec.name = "wo";
    const absl::Status status = PlanFor({spec}, OptionsFor({1, 2})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), std::string("matrix 'wo': ") + bad.sentence);
  }
}

TEST(Parts, RanksThatDifferAreToldWhere) {
  const auto difference = [](void (*change)(MatrixSpec&)) {
    std::vector<std::string> messages(2);
    RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
      std::vector<float> weight(48, 0.0f);
      auto runtime = *Runtime::Create(OptionsFor({1, 2}), rank.device, rank.transport);
      MatrixSpec spec = SpecOf("wo", 4, 12, {1, 1}, {4, 4, 4}, 2);
      spec.weight = weight.data();
      if (rank.rank == 1) change(spec);
      ASSERT_TRUE(runtime->AddMatrix(spec).ok());
      messages[rank.rank] = std::string(runtime->Commit().message());
    });
    EXPECT_EQ(messages[0], messages[1]);
    return messages[0];
  };
  EXPECT_THAT(difference([](MatrixSpec& spec) {
                spec.column_blocks = {4, 2, 6};
              }),
              AllOf(HasSubstr("'wo'"), HasSubstr("rank 0 has column_blocks[1] 4, rank 1 has 2")));
  EXPECT_THAT(difference([](MatrixSpec& spec) {
                spec.row_blocks = {2, 2};
                spec.row_groups = 1;
              }),
              AllOf(HasSubstr("'wo'"), HasSubstr("rank 0 has row_blocks[0] 1, rank 1 has 2")));
}

}  // namespace
}  // namespace weft
