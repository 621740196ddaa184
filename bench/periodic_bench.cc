// What periodic Muon saves: optimizer time over a cycle of real computation on this machine, and
// how much of a refresh's all-gathers NS hides on emulated links.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/emulated_world.h"
#include "bench/paced_device.h"
#include "weft/topology_preset.h"

namespace weft::bench {
namespace {

struct Settings {
  int width = 2048, layers = 1, ranks = 2, cycles = 1;
  int matrices = 24;       // of the emulated model
  double slowdown = 20;    // of the emulated links and device
  double teraflops = 170;  // of the device that is emulated
  std::string preset = "pcie-48gb-1nic";
  std::string part = "all";
};

struct Shape {
  std::int64_t rows, cols;
};

// The matrices of the example trainer's blocks at a width of its own.
std::vector<Shape> ExampleTrainer(const Settings& settings) {
  const std::int64_t d = settings.width;
  std::vector<Shape> shapes;
  for (int layer = 0; layer < settings.layers; ++layer) {
    for (const Shape& shape : {Shape{3 * d, d}, Shape{d, d}, Shape{4 * d, d}, Shape{d, 4 * d}}) {
      shapes.push_back(shape);
    }
  }
  return shapes;
}

struct Variant {
  const char* name;
  Strategy strategy;
  int period;
  bool spread;
};
constexpr Variant kVariants[] = {
    {"gather, K = 1", Strategy::kGather, 1, false},
    {"gather, K = 3, together", Strategy::kGather, 3, false},
    {"gather, K = 3, spread", Strategy::kGather, 3, true},
    {"owner, K = 1", Strategy::kOwner, 1, false},
    {"owner, K = 3, together", Strategy::kOwner, 3, false},
    {"owner, K = 3, spread", Strategy::kOwner, 3, true},
};

struct Times {
  double mean = 0;     // optimizer seconds of a step
  double slowest = 0;  // of a cycle, the median over cycles
};

// Shards of DefaultShardRows(), gradients reduced, as FSDP2 has them.
Times OptimizerTimes(const Variant& variant, const Settings& settings) {
  const std::vector<Shape> shapes = ExampleTrainer(settings);
  RuntimeOptions options;
  options.topology.grid = {1, settings.ranks};
  options.strategy = variant.strategy;
  options.spread_refreshes = variant.spread;
  options.pass_through = PassThrough::kNever;
  constexpr int kCycle = 3;
  const int steps = kCycle * (1 + settings.cycles);  // the first cycle warms up
  EmulatedWorld world(options.topology);
  std::vector<double> seconds(steps);
  world.OnAll([&](int r, EmulatedRank& rank) {
    rank.device = *CreateHostDevice();
    rank.runtime = *Runtime::Create(options, *rank.device, *rank.transport);
    std::mt19937_64 random(r);
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> weights, gradients;
    for (std::size_t m = 0; m < shapes.size(); ++m) {
      const std::int64_t rows = DefaultShardRows(shapes[m].rows, settings.ranks)[r];
      weights.emplace_back(rows * shapes[m].cols);
      for (float& value : gradients.emplace_back(weights.back().size())) value = normal(random);
      MatrixSpec spec{.name = absl::StrCat("m", m),
                      .rows = shapes[m].rows,
                      .cols = shapes[m].cols,
                      .weight = weights.back().data(),
                      .layout = Layout::kSharded,
                      .gradient = GradientKind::kReduced};
      MuonOptions muon;
      muon.periodic.period = variant.period;
      spec.rule = muon;
      WEFT_CHECK(rank.runtime->AddMatrix(spec).ok());
    }
    const absl::Status committed = rank.runtime->Commit();
    WEFT_CHECK(committed.ok()) << committed;
    for (int step = 0; step < steps; ++step) {
      for (std::size_t m = shapes.size(); m-- > 0;) {
        WEFT_CHECK(
            rank.runtime
                ->Submit({.matrix = static_cast<MatrixId>(m), .gradient = gradients[m].data()})
                .ok());
      }
      WEFT_CHECK(rank.runtime->Step().ok());
      WEFT_CHECK(rank.runtime->WaitForStep().ok());
      const auto metrics = rank.runtime->MetricsOfAllRanks();
      WEFT_CHECK(metrics.ok()) << metrics.status();
      if (r == 0) seconds[step] = OptimizerSeconds(*metrics);
    }
    // Before the memory it works on.
    rank.runtime.reset();
  });
  Times times;
  std::vector<double> slowest;
  for (int first = kCycle; first < steps; first += kCycle) {
    const auto begin = seconds.begin() + first;
    for (auto step = begin; step != begin + kCycle; ++step) {
      times.mean += *step / (kCycle * settings.cycles);
    }
    slowest.push_back(*std::max_element(begin, begin + kCycle));
  }
  std::nth_element(slowest.begin(), slowest.begin() + slowest.size() / 2, slowest.end());
  times.slowest = slowest[slowest.size() / 2];
  return times;
}

void MeasureCycles(const Settings& settings) {
  std::printf(
      "%d layers of the example trainer at width %d, fp32, %d ranks, %d cycles of 3 steps\n",
      settings.layers, settings.width, settings.ranks, settings.cycles);
  std::printf("%-26s %10s %12s %14s %14s\n", "", "mean step", "against K=1", "slowest step",
              "spread/together");
  Times base, together;
  for (const Variant& variant : kVariants) {
    const Times times = OptimizerTimes(variant, settings);
    if (variant.period == 1) base = times;
    if (variant.period > 1 && !variant.spread) together = times;
    std::printf("%-26s %8.0f ms %11.1f%% %11.0f ms", variant.name, 1e3 * times.mean,
                100 * (times.mean / base.mean - 1), 1e3 * times.slowest);
    if (variant.spread) std::printf(" %14.2f", times.slowest / together.slowest);
    std::printf("\n");
    std::fflush(stdout);
  }
}

constexpr int kSide = 128;
constexpr double kSideRatio = 20;  // stands for a real side of 2560

// Median seconds of a refresh of equal matrices in shards.
double RefreshSeconds(const Settings& settings, const Topology& topology, int in_turn) {
  RuntimeOptions options;
  options.topology = topology;
  options.strategy = Strategy::kGather;
  options.limits.buffers_in_turn = in_turn;
  AsLargeMatrices(options);
  const double flops_per_second =
      1e12 * settings.teraflops / (kSideRatio * kSideRatio * kSideRatio * settings.slowdown);
  EmulatedWorld world(topology);
  std::vector<double> seconds;
  world.OnAll([&](int r, EmulatedRank& rank) {
    rank.device = std::make_unique<PacedDevice>(flops_per_second, /*priorities=*/true);
    rank.memory.assign(static_cast<std::size_t>(settings.matrices + 1) * kSide * kSide, 0x3f80);
    rank.runtime = *Runtime::Create(options, *rank.device, *rank.transport);
    for (int m = 0; m < settings.matrices; ++m) {
      MuonOptions muon;
      muon.newton_schulz.operand_type = DType::kBF16;
      muon.newton_schulz.segments = {0};
      muon.periodic.period = 2;
      MatrixSpec spec{.name = absl::StrCat("m", m),
                      .rows = kSide,
                      .cols = kSide,
                      .dtype = DType::kBF16,
                      .weight = &rank.memory[static_cast<std::size_t>(m) * kSide * kSide],
                      .layout = Layout::kSharded,
                      .gradient = GradientKind::kReduced,
                      .rule = muon};
      WEFT_CHECK(rank.runtime->AddMatrix(spec).ok());
    }
    const absl::Status committed = rank.runtime->Commit();
    WEFT_CHECK(committed.ok()) << committed;
    const std::uint16_t* gradient = &rank.memory[rank.memory.size() - kSide * kSide];
    for (int step = 0; step < 10; ++step) {
      for (int m = settings.matrices - 1; m >= 0; --m) {
        WEFT_CHECK(rank.runtime->Submit({.matrix = m, .gradient = gradient}).ok());
      }
      WEFT_CHECK(rank.runtime->Step().ok());
      WEFT_CHECK(rank.runtime->WaitForStep().ok());
      const auto metrics = rank.runtime->MetricsOfAllRanks();
      WEFT_CHECK(metrics.ok()) << metrics.status();
      if (r == 0 && step >= 2 && step % 2 == 0) seconds.push_back(OptimizerSeconds(*metrics));
    }
  });
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

void MeasurePipeline(const Settings& settings) {
  Topology links = *Preset(settings.preset, 1);
  links.grid.ranks_per_node = 4;
  links = Emulated(links, {kSideRatio, settings.slowdown});
  Topology free_links;
  free_links.grid = links.grid;
  std::printf(
      "refresh of %d matrices of 2560 x 2560 gathered over %d ranks, %s, %.0f TFLOP/s, "
      "times %.0f\n",
      settings.matrices, links.grid.size(), settings.preset.c_str(), settings.teraflops,
      settings.slowdown);
  std::printf("%-34s %9s %9s\n", "whole matrices alive", "refresh", "exposed");
  const double compute = RefreshSeconds(settings, free_links, 2);
  double without = 0;
  for (const int in_turn : {1, 2, 4}) {
    const double seconds = RefreshSeconds(settings, links, in_turn);
    const double exposed = seconds - compute;
    if (in_turn == 1) without = exposed;
    std::printf("%-34s %6.0f ms %6.0f ms",
                in_turn == 1 ? "1 (no pipeline)" : absl::StrCat(in_turn).c_str(), 1e3 * seconds,
                1e3 * exposed);
    if (in_turn > 1) std::printf("  %.1f %% less", 100 * (1 - exposed / without));
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("NS alone (links that cost nothing) %6.0f ms\n", 1e3 * compute);
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("What periodic Muon saves.");
  app.add_option("--width", settings.width, "Of the example trainer's matrices")
      ->check(CLI::PositiveNumber);
  app.add_option("--layers", settings.layers)->check(CLI::PositiveNumber);
  app.add_option("--ranks", settings.ranks)->check(CLI::PositiveNumber);
  app.add_option("--cycles", settings.cycles, "Measured, after one that is not")
      ->check(CLI::PositiveNumber);
  app.add_option("--matrices", settings.matrices, "Of the emulated model")
      ->check(CLI::PositiveNumber);
  app.add_option("--slowdown", settings.slowdown)->check(CLI::PositiveNumber);
  app.add_option("--teraflops", settings.teraflops)->check(CLI::PositiveNumber);
  app.add_option("--preset", settings.preset);
  app.add_option("--part", settings.part)->check(CLI::IsMember({"all", "cycles", "pipeline"}));
  CLI11_PARSE(app, argc, argv);
  if (settings.part != "pipeline") MeasureCycles(settings);
  if (settings.part != "cycles") MeasurePipeline(settings);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) { return weft::bench::Main(argc, argv); }
