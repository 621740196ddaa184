// weft_ns_bench: how fast Newton-Schulz runs on this machine, as ratios measured in one run, and
// the table of the segment analysis. docs/update-rules.md says how to read it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/check.h"
#include "bench/ns_bench_measure.h"

namespace weft::bench {
namespace {

struct Settings {
  std::int64_t rows = 2560;
  std::int64_t cols = 9728;
  std::string dtype = "bf16";
  std::string coefficients = "quintic";
  std::vector<int> segments = {2, 2, 1};
  int threads = 2;
  int rounds = 5;
};

std::vector<float> Gaussian(std::int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

Coefficients Chosen(const std::string& name) {
  auto coefficients = Coefficients::Named(name);
  WEFT_CHECK(coefficients.ok()) << std::string(coefficients.status().message());
  return *coefficients;
}

void PrintLine(const char* what, double seconds, const NewtonSchulzCost& cost) {
  std::printf("%-44s %9.4f s %9.1f dense GFLOP/s\n", what, seconds,
              cost.dense_flops / seconds * 1e-9);
}

void Measure(const Settings& settings) {
  auto device = *CreateHostDevice({.threads = settings.threads});
  NewtonSchulzOptions gram_options;
  gram_options.coefficients = Chosen(settings.coefficients);
  gram_options.operand_type = *DTypeNamed(settings.dtype);
  gram_options.segments = settings.segments;
  NewtonSchulzOptions plain_options = gram_options;
  plain_options.segments = {0};

  const std::vector<float> update = Gaussian(settings.rows * settings.cols);
  std::vector<float> direction(update.size());
  auto gram = update::NewtonSchulz::Create(*device, gram_options, settings.rows, settings.cols);
  auto plain = update::NewtonSchulz::Create(*device, plain_options, settings.rows, settings.cols);
  WEFT_CHECK(gram.ok()) << std::string(gram.status().message());
  WEFT_CHECK(plain.ok()) << std::string(plain.status().message());
  const update::Recipe& recipe = (*gram)->recipe();
  const update::Recipe& plain_recipe = (*plain)->recipe();
  const auto workspace =
      *device->Allocate(std::max((*gram)->workspace_bytes(), (*plain)->workspace_bytes()));
  DenseRecipe dense_plain(*device, plain_options, settings.rows, settings.cols);
  RawProducts raw(*device, gram_options.operand_type, settings.threads, recipe.m, recipe.n);
  StreamTimer timer(*device);

  std::vector<double> gram_s, plain_s, dense_s, raw_gram_s, raw_plain_s, gram_over_dense,
      gram_over_plain, rate;
  for (int round = 0; round <= settings.rounds; ++round) {
    const double g = timer.Seconds([&](Stream& stream) {
      (void)(*gram)->Enqueue(stream, update.data(), direction.data(), workspace->data());
    });
    const RawProducts::Times before = raw.Run();
    const double d = timer.Seconds(
        [&](Stream& stream) { dense_plain.Enqueue(stream, update.data(), direction.data()); });
    const double p = timer.Seconds([&](Stream& stream) {
      (void)(*plain)->Enqueue(stream, update.data(), direction.data(), workspace->data());
    });
    const RawProducts::Times after = raw.Run();
    if (round == 0) continue;  // warm-up
    const RawProducts::Times times{(before.gram + after.gram) / 2, (before.small + after.small) / 2,
                                   (before.apply + after.apply) / 2};
    gram_s.push_back(g);
    plain_s.push_back(p);
    dense_s.push_back(d);
    raw_gram_s.push_back(RawProducts::Total(times, recipe));
    raw_plain_s.push_back(RawProducts::Total(times, plain_recipe));
    gram_over_dense.push_back(g / d);
    gram_over_plain.push_back(g / p);
    rate.push_back(raw_gram_s.back() / g);
  }

  const NewtonSchulzCost cost = recipe.Cost();
  const NewtonSchulzCost plain_cost = plain_recipe.Cost();
  std::printf("%lld x %lld %s, %s, segments [%s], %d threads, medians of %d rounds\n",
              static_cast<long long>(settings.rows), static_cast<long long>(settings.cols),
              settings.dtype.c_str(), settings.coefficients.c_str(),
              absl::StrJoin(recipe.segments, ",").c_str(), settings.threads, settings.rounds);
  PrintLine("Gram NS", Median(gram_s), cost);
  PrintLine("plain NS, symmetric products", Median(plain_s), plain_cost);
  PrintLine("plain NS, every product in full", Median(dense_s), plain_cost);
  PrintLine("oneDNN alone, Gram NS's products in full", Median(raw_gram_s), cost);
  PrintLine("oneDNN alone, plain NS's products in full", Median(raw_plain_s), plain_cost);
  const double executed = cost.symmetric_flops / cost.dense_flops;
  std::printf("Gram NS / plain NS in full                    %.3f\n", Median(gram_over_dense));
  std::printf("Gram NS / plain NS with symmetric products    %.3f\n", Median(gram_over_plain));
  std::printf("Gram NS's rate / oneDNN's, dense FLOPs        %.3f\n", Median(rate));
  std::printf("Gram NS's rate / oneDNN's, executed FLOPs     %.3f\n", Median(rate) * executed);
}

void PrintSegments() {
  const std::vector<std::vector<int>> sets = {{2, 3},    {3, 2},    {2, 2, 1}, {2, 1, 2},
                                              {1, 2, 2}, {1, 3, 1}, {1, 1, 3}, {1, 1, 1, 2}};
  std::printf("%-14s %-4s %8s", "coefficients", "type", "epsilon");
  for (const auto& set : sets) std::printf(" %9s", absl::StrJoin(set, ",").c_str());
  std::printf("  chosen\n");
  for (const char* name : {"quintic", "polar_express", "you"}) {
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      const Coefficients coefficients = Chosen(name);
      const double epsilon = SpuriousEigenvalue(type);
      std::printf("%-14s %-4s %8.1e", name, std::string(Name(type)).c_str(), epsilon);
      for (const auto& set : sets) {
        std::printf(" %9.3g", AnalyzeSegments(coefficients, set, epsilon).condition);
      }
      const auto chosen = ChooseSegments(coefficients, 5, epsilon, LongestSegment(type));
      std::printf("  [%s]\n", absl::StrJoin(chosen, ",").c_str());
    }
  }
}

// Where computing one triangle begins to pay: the symmetric product against the full one.
void PrintCrossover(const Settings& settings) {
  auto device = *CreateHostDevice({.threads = settings.threads});
  StreamTimer timer(*device);
  std::printf("%6s %6s %s: symmetric / full\n", "m", "k", settings.dtype.c_str());
  const DType type = *DTypeNamed(settings.dtype);
  for (const std::int64_t m : {128, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048}) {
    for (const std::int64_t k : {m, 4 * m}) {
      const auto a = *device->Allocate(static_cast<std::size_t>(m * k) * SizeOf(type));
      const auto d = *device->Allocate(static_cast<std::size_t>(m * m) * SizeOf(type));
      std::fill_n(a->as<unsigned char>(), a->bytes(), static_cast<unsigned char>(0));
      Product product;
      product.a = Matrix::Dense(a->data(), type, m, k);
      product.b = product.a;
      product.transpose_b = true;
      product.d = Matrix::Dense(d->data(), type, m, m);
      Product symmetric = product;
      symmetric.symmetric = true;
      std::vector<double> ratios;
      for (int round = 0; round < 9; ++round) {
        const auto seconds = [&](const Product& what) {
          return timer.Seconds([&](Stream& stream) {
            for (int i = 0; i < 3; ++i) (void)device->math().MatMul(stream, what);
          });
        };
        const double full = seconds(product);
        const double ratio = seconds(symmetric) / full;
        if (round > 0) ratios.push_back(ratio);
      }
      std::printf("%6lld %6lld %.3f\n", static_cast<long long>(m), static_cast<long long>(k),
                  Median(ratios));
    }
  }
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Newton-Schulz on this machine: speed ratios, and the segment analysis");
  app.add_option("--rows", settings.rows)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--cols", settings.cols)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--dtype", settings.dtype)
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "f32"}));
  app.add_option("--coefficients", settings.coefficients)->capture_default_str();
  app.add_option("--segments", settings.segments, "Lengths of the Gram segments")->delimiter(',');
  app.add_option("--threads", settings.threads)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--rounds", settings.rounds)->capture_default_str()->check(CLI::PositiveNumber);
  bool table = false;
  bool crossover = false;
  app.add_flag("--table", table, "Print the segment analysis and stop");
  app.add_flag("--crossover", crossover, "Print symmetric against full products and stop");
  CLI11_PARSE(app, argc, argv);
  if (table) {
    PrintSegments();
  } else if (crossover) {
    PrintCrossover(settings);
  } else {
    Measure(settings);
  }
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) { return weft::bench::Main(argc, argv); }
