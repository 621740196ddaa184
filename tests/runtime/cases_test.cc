// Small situations that have gone wrong in practice, run as a trainer would run them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/commit.h"
#include "tests/support/costs.h"
#include "tests/support/halves.h"
#include "tests/support/model.h"
#include "tests/support/property.h"
#include "tests/support/world.h"
#include "tools/reference/update.h"

namespace weft {
namespace {

using testing::Normal;
using testing::OptionsFor;
using testing::RankModel;
using testing::RunWorld;

constexpr std::uint64_t kSeed = 17;

struct Way {
  Strategy strategy;
  Layout layout;
  GradientKind kind = GradientKind::kLocal;
};
const std::vector<Way> kWays = {
    {Strategy::kReplicated, Layout::kReplicated, GradientKind::kLocal},
    {Strategy::kReplicated, Layout::kReplicated, GradientKind::kReduced},
    {Strategy::kGather, Layout::kSharded, GradientKind::kLocal},
    {Strategy::kGather, Layout::kSharded, GradientKind::kReduced},
    {Strategy::kOwner, Layout::kReplicated, GradientKind::kLocal},
    {Strategy::kOwner, Layout::kReplicated, GradientKind::kReduced},
    {Strategy::kOwner, Layout::kSharded, GradientKind::kLocal},
    {Strategy::kOwner, Layout::kSharded, GradientKind::kReduced},
};
std::string Text(const Way& way) {
  return std::string(Name(way.strategy)) + ", " + std::string(Name(way.layout)) + ", " +
         std::string(Name(way.kind));
}

std::vector<std::uint16_t> Halves(DType type, const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float value : values) bits.push_back(testing::HalfBits(type, value));
  return bits;
}

// `spoil` puts something that is not finite, or sums to it, into one element of the second step's
// gradient of the first of two matrices, on each rank.
void ExpectThatNothingChangesWhen(DType type,
                                  const std::function<void(int rank, std::uint16_t&)>& spoil) {
  constexpr std::int64_t kElements = 128 * 128;
  for (const auto& way : {std::pair{Strategy::kReplicated, Layout::kReplicated},
                          std::pair{Strategy::kGather, Layout::kSharded},
                          std::pair{Strategy::kOwner, Layout::kReplicated},
                          std::pair{Strategy::kOwner, Layout::kSharded}}) {
    RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
      const auto [strategy, layout] = way;
      RuntimeOptions options = OptionsFor({1, 2}, strategy);
      options.non_finite = NonFinite::kSkipStep;
      auto runtime = *Runtime::Create(options, rank.device, rank.transport);
      const std::int64_t held = layout == Layout::kSharded ? kElements / 2 : kElements;
      std::vector<std::vector<std::uint16_t>> weights;
      for (int m = 0; m < 2; ++m) {
        std::vector<std::uint16_t> whole = Halves(type, Normal(kElements, kSeed, 1, m));
        const auto first = whole.begin() + (held < kElements ? rank.rank * held : 0);
        weights.emplace_back(first, first + held);
      }
      for (int m = 0; m < 2; ++m) {
        MatrixSpec spec{.name = "m" + std::to_string(m), .rows = 128, .cols = 128};
        spec.dtype = type;
        spec.layout = layout;
        spec.weight = weights[m].data();
        ASSERT_TRUE(runtime->AddMatrix(spec).ok());
      }
      ASSERT_TRUE(runtime->Commit().ok());
      const auto step = [&](int number, bool bad) {
        for (int m = 1; m >= 0; --m) {
          auto gradient = Halves(type, Normal(kElements, kSeed, 2 + number, m, rank.rank));
          if (bad && m == 0) spoil(rank.rank, gradient[777]);
          ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
        }
        ASSERT_TRUE(runtime->Step().ok());
        EXPECT_EQ(runtime->WaitForStep(), absl::OkStatus());
      };
      const auto states = [&] {
        std::vector<std::vector<float>> all;
        for (int m = 0; m < 2; ++m) {
          const auto state = *runtime->State(m);
          all.emplace_back(state.begin(), state.end());
        }
        return all;
      };
      step(0, false);
      const auto weights_before = weights;
      const auto states_before = states();
      step(1, true);
      EXPECT_EQ(weights, weights_before);
      EXPECT_EQ(states(), states_before);
      EXPECT_EQ(runtime->Metrics()->skipped_matrices, 2);
      step(2, false);
      EXPECT_NE(weights, weights_before);
    });
  }
}

TEST(Cases, Case02OneInfinityOnOneRankChangesNothingAnywhere) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    ExpectThatNothingChangesWhen(type, [type](int rank, std::uint16_t& element) {
      if (rank == 1) element = testing::HalfBits(type, INFINITY);
    });
  }
}

// Each rank's gradient is finite, their sum is beyond 65504.
TEST(Cases, AnFp16SumOutOfRangeChangesNothingAnywhere) {
  ExpectThatNothingChangesWhen(DType::kF16, [](int, std::uint16_t& element) {
    element = testing::HalfBits(DType::kF16, 40000);
  });
}

double NormOf(const std::vector<float>& a, const std::vector<float>& b) {
  double square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) square += std::pow(double{a[i]} - b[i], 2);
  return std::sqrt(square);
}

// Clipping acts on the gradient, not on the update: momentum shrinks, the update does not.
TEST(Cases, Case10TheUpdatesNormDoesNotDependOnTheClipFactor) {
  for (const Way& way : kWays) {
    std::vector<double> updates, momenta, factors;
    for (const double limit : {0.0, 1.0, 1e-3}) {
      RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
        RankModel model({{12, 20}}, way.layout, way.kind, rank.rank, 2, kSeed);
        RuntimeOptions options = OptionsFor({1, 2}, way.strategy);
        options.max_gradient_norm = limit;
        MuonOptions muon;
        muon.weight_decay = 0;
        auto runtime = testing::Commit(options, rank, model, muon);
        const std::vector<float> before = model.weight(0), gradient = model.Gradient(0, 0);
        ASSERT_TRUE(runtime->Submit({.matrix = 0, .gradient = gradient.data()}).ok());
        ASSERT_TRUE(runtime->Step().ok());
        ASSERT_TRUE(runtime->WaitForStep().ok());
        const auto state = *runtime->State(0);
        if (rank.rank != std::max(runtime->plan().matrices[0].owner, 0)) return;
        updates.push_back(NormOf(model.weight(0), before));
        momenta.push_back(NormOf({state.begin(), state.end()}, std::vector<float>(state.size())));
        factors.push_back(runtime->Metrics()->clip_factor);
      });
    }
    ASSERT_EQ(updates.size(), 3u) << Text(way);
    EXPECT_EQ(factors[0], 1) << Text(way);
    for (int i = 1; i < 3; ++i) {
      EXPECT_LT(factors[i], 0.2) << Text(way);
      EXPECT_NEAR(momenta[i], factors[i] * momenta[0], 1e-5 * factors[i] * momenta[0]) << Text(way);
      EXPECT_GT(updates[0], 0) << Text(way);
      EXPECT_NEAR(updates[i], updates[0], 1e-4 * updates[0]) << Text(way);
    }
  }
}

// The mean gradient of 8 samples at once, or of 2 in each of 4 micro-steps.
TEST(Cases, Case11AccumulationIsOneStep) {
  constexpr int kSteps = 3;
  const std::vector<testing::Shape> shapes = {{12, 20}, {16, 16}, {20, 6}};
  const auto mean = [](const RankModel& model, std::size_t m, int step, int first, int samples) {
    std::vector<float> sum(model.Gradient(m, 0).size(), 0.0f);
    for (int sample = first; sample < first + samples; ++sample) {
      const std::vector<float> one = model.Gradient(m, 8 * step + sample);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i] / 8;
    }
    return sum;
  };
  for (const Way& way : kWays) {
    // By parts, negative where each is reduced, and rank.
    std::map<std::pair<int, int>, std::vector<std::vector<float>>> weights;
    std::map<int, std::int64_t> runs;
    std::mutex mutex;
    for (const int way_of_parts : {1, 4, -4}) {
      const int parts = std::abs(way_of_parts);
      RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
        RankModel model(shapes, way.layout, way.kind, rank.rank, 2, kSeed);
        RuntimeOptions options = OptionsFor({1, 2}, way.strategy);
        options.limits.passes = parts;
        options.limits.reduce_each_pass = way_of_parts < 0;
        auto runtime = testing::Commit(options, rank, model, MuonOptions{.weight_decay = 0.1});
        for (int step = 0; step < kSteps; ++step) {
          for (int part = 0; part < parts; ++part) {
            for (int m = 2; m >= 0; --m) {
              const auto gradient = mean(model, m, step, part * 8 / parts, 8 / parts);
              const auto job = runtime->Submit(
                  {.matrix = m, .gradient = gradient.data(), .more = part + 1 < parts});
              ASSERT_TRUE(job.ok()) << job.status();
            }
          }
          ASSERT_TRUE(runtime->Step().ok());
        }
        ASSERT_TRUE(runtime->WaitForStep().ok());
        const std::lock_guard<std::mutex> lock(mutex);
        weights[{way_of_parts, rank.rank}] = model.weights();
        for (const MatrixCounters& counters : runtime->Counters()) {
          runs[way_of_parts] += counters.ns_runs;
        }
      });
    }
    // Each matrix once in a step where it has an owner, else once on each of both ranks.
    const std::int64_t copies = way.strategy == Strategy::kOwner ? 1 : 2;
    for (const int parts : {1, 4, -4}) {
      EXPECT_EQ(runs[parts], 3 * kSteps * copies) << Text(way);
      for (int rank = 0; rank < 2; ++rank) {
        for (std::size_t m = 0; m < shapes.size(); ++m) {
          const auto& whole = weights[{1, rank}][m];
          const auto& summed = weights[{parts, rank}][m];
          for (std::size_t i = 0; i < whole.size(); ++i) {
            EXPECT_NEAR(summed[i], whole[i], 1e-5) << Text(way);
          }
        }
      }
    }
  }
}

// One 50000 x 64 and twelve 64 x 64 over four ranks, at the cost of their Newton-Schulz runs.
TEST(Cases, Case15OneHugeMatrixAmongSmallOnes) {
  std::vector<MatrixSpec> specs = {{.name = "huge", .rows = 50000, .cols = 64}};
  for (int i = 0; i < 12; ++i) {
    specs.push_back({.name = "small" + std::to_string(i), .rows = 64, .cols = 64});
  }
  for (const OwnerSolver solver : {OwnerSolver::kHeuristic, OwnerSolver::kMilp}) {
    RuntimeOptions options = OptionsFor({1, 4});
    options.owner_solver = solver;
    options.costs = testing::FlopsAsSeconds(options.topology);
    const auto plan = PlanFor(specs, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<double> loads(4, 0.0);
    for (const PlanMatrix& matrix : plan->matrices) loads.at(matrix.owner) += matrix.flops;
    // All ways to deal twelve equal ones, the huge one being on the first rank.
    const double huge = plan->matrices[0].flops, small = plan->matrices[1].flops;
    double best = std::numeric_limits<double>::infinity();
    for (int a = 0; a <= 12; ++a) {
      for (int b = 0; a + b <= 12; ++b) {
        for (int c = 0; a + b + c <= 12; ++c) {
          best = std::min(
              best, std::max({huge + a * small, b * small, c * small, (12 - a - b - c) * small}));
        }
      }
    }
    const double makespan = *std::max_element(loads.begin(), loads.end());
    EXPECT_LE(makespan, 1.05 * best);
    EXPECT_DOUBLE_EQ(plan->owner_report.makespan, makespan);
    EXPECT_LE(plan->owner_report.lower_bound, best * (1 + 1e-12));
  }
}

struct Tiny {
  ProcessGrid grid;
  PassThrough pass_through = PassThrough::kNever;
};

constexpr int kTinyBatch = 25;
// A thousand in all; sanitizers take a hundred times as long.
constexpr int kTinyHalf = testing::kSanitized ? 50 : 500;

std::vector<testing::Shape> TinyShapes() {
  std::vector<testing::Shape> shapes(kTinyHalf, {16, 16});
  shapes.insert(shapes.end(), kTinyHalf, {8, 8});
  return shapes;
}

// Buckets in use order, each as full as the bytes, and where there are owners an eighth of a rank's
// mean of FLOPs, allow.
std::vector<std::vector<int>> TinyBuckets(const Plan& plan, const Tiny& tiny) {
  double total = 0;
  for (const PlanMatrix& matrix : plan.matrices) total += matrix.flops;
  const double most = tiny.pass_through == PassThrough::kAlways
                          ? std::numeric_limits<double>::infinity()
                          : total / tiny.grid.size() / 8;
  std::vector<std::vector<int>> buckets(1);
  std::int64_t bytes = 0;
  double flops = 0;
  for (int m = 0; m < 2 * kTinyHalf; ++m) {
    const std::int64_t mine = m < kTinyHalf ? 1024 : 256;
    if (bytes + mine > plan.limits.bucket_bytes || flops + plan.matrices[m].flops > most) {
      buckets.emplace_back();
      bytes = 0;
      flops = 0;
    }
    buckets.back().push_back(m);
    bytes += mine;
    flops += plan.matrices[m].flops;
  }
  return buckets;
}

int TinyRuns(const std::vector<int>& bucket) {
  const auto large = static_cast<int>(
      std::count_if(bucket.begin(), bucket.end(), [](int m) { return m < kTinyHalf; }));
  const int small = static_cast<int>(bucket.size()) - large;
  return (large + kTinyBatch - 1) / kTinyBatch + (small + kTinyBatch - 1) / kTinyBatch;
}

TEST(Cases, Case29AThousandTinyMatricesRunInBatchesAndTravelInBuckets) {
  constexpr int kSteps = 2;
  const std::vector<testing::Shape> shapes = TinyShapes();
  MuonOptions muon;
  muon.lr = 0.05;
  reference::MuonSettings settings;
  settings.lr = 0.05;
  settings.momentum = muon.momentum;
  settings.nesterov = muon.nesterov;
  settings.iterations.assign(5, {3.4445, -4.7750, 2.0315});
  for (const Tiny& tiny : {Tiny{{1, 1}}, Tiny{{1, 2}}, Tiny{{1, 2}, PassThrough::kAlways}}) {
    const int world = tiny.grid.size();
    RuntimeOptions options = OptionsFor(tiny.grid);
    options.pass_through = tiny.pass_through;
    options.owner_solver = OwnerSolver::kHeuristic;  // buckets do not depend on who owns them
    // A launch costs ten times what a matrix adds.
    std::vector<double> costs;
    for (int batch = 1; batch <= kTinyBatch; ++batch) costs.push_back(10 + batch);
    options.ownership.batch_costs = {costs, costs};
    for (int m = 0; m < 2 * kTinyHalf; ++m)
      options.ownership.matrix_table.push_back(m < kTinyHalf ? 0 : 1);
    std::vector<std::vector<double>> expected;
    const RankModel reference_model(shapes, Layout::kReplicated, GradientKind::kLocal, 0, world,
                                    kSeed);
    for (std::size_t m = 0; m < shapes.size(); ++m) {
      const std::vector<float> first = reference_model.FirstWeight(m);
      std::vector<double> weight(first.begin(), first.end()), momentum(weight.size());
      for (int step = 0; step < kSteps; ++step) {
        const std::vector<float> mean = reference_model.MeanGradient(m, step);
        reference::MuonStep(settings, shapes[m].rows, shapes[m].cols, {mean.begin(), mean.end()},
                            momentum, weight);
      }
      expected.push_back(std::move(weight));
    }
    std::vector<int> runs(shapes.size(), 0);
    std::mutex mutex;
    RunWorld({.grid = tiny.grid}, [&](testing::Rank rank) {
      RankModel model(shapes, Layout::kReplicated, GradientKind::kLocal, rank.rank, world, kSeed);
      auto runtime = testing::Commit(options, rank, model, muon);
      const Plan& plan = runtime->plan();
      std::map<OpKind, int> ops;
      for (const Op& op : plan.ops) ++ops[op.kind];
      int expected_runs = 0, buckets = 0;
      if (world == 1) {
        expected_runs = 2 * (kTinyHalf / kTinyBatch);
      } else {
        for (const std::vector<int>& bucket : TinyBuckets(plan, tiny)) {
          expected_runs += TinyRuns(bucket);
          ++buckets;
        }
      }
      EXPECT_EQ(ops[OpKind::kOrthogonalize], expected_runs);
      EXPECT_LE(expected_runs, 60);
      const bool passed = tiny.pass_through == PassThrough::kAlways;
      EXPECT_EQ(ops[OpKind::kAllReduce], passed ? buckets : 0);
      EXPECT_EQ(ops[OpKind::kReduce], passed ? 0 : buckets);
      EXPECT_EQ(ops[OpKind::kBroadcast], passed ? 0 : buckets);
      EXPECT_LE(buckets, passed ? 3 : 20);
      for (int step = 0; step < kSteps; ++step) {
        for (int m = 2 * kTinyHalf - 1; m >= 0; --m) {
          const std::vector<float> gradient = model.Gradient(m, step);
          ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
        }
        ASSERT_TRUE(runtime->Step().ok());
        ASSERT_TRUE(runtime->WaitForStep().ok());
      }
      EXPECT_EQ(runtime->Metrics()->jobs, 2 * kTinyHalf);
      EXPECT_GT(runtime->Metrics()->host_microseconds_per_job, 0);
      const std::lock_guard<std::mutex> lock(mutex);
      const std::vector<MatrixCounters> counters = runtime->Counters();
      for (std::size_t m = 0; m < shapes.size(); ++m) {
        runs[m] += static_cast<int>(counters[m].ns_runs);
        double error = 0, norm = 0;
        for (std::size_t i = 0; i < expected[m].size(); ++i) {
          error += std::pow(model.weight(m)[i] - expected[m][i], 2);
          norm += std::pow(expected[m][i], 2);
        }
        EXPECT_LE(std::sqrt(error), 3e-5 * std::sqrt(norm)) << "rank " << rank.rank << ", m" << m;
      }
    });
    const int copies = tiny.pass_through == PassThrough::kAlways ? world : 1;
    for (const int count : runs) EXPECT_EQ(count, kSteps * copies);
  }
}

// A reduction and a publication in one step, for every matrix: what has really run.
TEST(Cases, Case31TwoCollectivesPerMatrixAndStepHaveRun) {
  constexpr int kSteps = 4;
  for (const ProcessGrid& grid : {ProcessGrid{1, 3}, ProcessGrid{3, 1}, ProcessGrid{2, 2}}) {
    const bool two_levels = grid.nodes > 1 && grid.ranks_per_node > 1;
    for (const Way& way : kWays) {
      // Repeated work is not brought to one rank, so that it has one level everywhere.
      const std::int64_t most = two_levels && way.strategy == Strategy::kOwner ? 4 : 2;
      RunWorld({.grid = grid}, [&](testing::Rank rank) {
        RankModel model({{12, 20}, {16, 16}, {20, 6}}, way.layout, way.kind, rank.rank, grid.size(),
                        kSeed);
        auto runtime = testing::Commit(OptionsFor(grid, way.strategy), rank, model);
        for (int step = 0; step < kSteps; ++step) {
          for (int m = 2; m >= 0; --m) {
            const std::vector<float> gradient = model.Gradient(m, step);
            ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
          }
          ASSERT_TRUE(runtime->Step().ok());
        }
        ASSERT_TRUE(runtime->WaitForStep().ok());
        for (const MatrixCounters& counters : runtime->Counters()) {
          EXPECT_LE(counters.collectives, most * kSteps)
              << Text(way) << ", rank " << rank.rank << ", " << counters.name;
          EXPECT_EQ(counters.collectives % kSteps, 0);
          if (way.kind == GradientKind::kLocal) {
            EXPECT_GT(counters.collectives, 0);
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace weft
