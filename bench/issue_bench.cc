// What issuing a plan's ops costs the caller's thread: Submit() of every matrix and Step(), divided
// by the ops that this rank issues, and as us_per_job by the matrices; as metrics_us_per_job what
// StepMetrics says of it. Issue: rules that do nothing and gradients of one element. Tiny: Muon on
// 8 x 8 and 16 x 16, with buckets and batches or without. The wait for the step to finish is not
// timed; what runs meanwhile takes its share of the cores.
#include <benchmark/benchmark.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "weft/clock.h"
#include "weft/device.h"
#include "weft/runtime.h"
#include "weft/transport.h"

namespace weft {
namespace {

constexpr int kTinyBatch = 25;

struct Rank {
  std::unique_ptr<Device> device;
  std::unique_ptr<Transport> transport;
  std::vector<float> weights;
  std::unique_ptr<Runtime> runtime;
  std::vector<float> gradient;
  std::int64_t ops = 0;  // that it issues in a step
  int matrices = 0;
};

void CommitAndCount(Rank& rank) {
  const absl::Status status = rank.runtime->Commit();
  WEFT_CHECK(status.ok()) << status;
  for (const auto& lane : rank.runtime->plan().lanes[rank.transport->rank()]) {
    rank.ops += static_cast<std::int64_t>(lane.size());
  }
}

void Commit(Rank& rank, const ProcessGrid& grid, bool trace, int matrices) {
  rank.matrices = matrices;
  rank.weights.assign(matrices, 1.0f);
  rank.gradient.assign(1, 1.0f);
  rank.device = *CreateHostDevice();
  RuntimeOptions options;
  options.topology.grid = grid;
  options.trace = trace;
  rank.runtime = *Runtime::Create(options, *rank.device, *rank.transport);
  CustomRule rule;
  rule.enqueue = [](const RuleContext&) { return absl::OkStatus(); };
  for (int m = 0; m < matrices; ++m) {
    MatrixSpec spec;
    spec.name = absl::StrCat("m", m);
    spec.rows = spec.cols = 1;
    spec.weight = &rank.weights[m];
    spec.rule = rule;
    WEFT_CHECK(rank.runtime->AddMatrix(spec).ok());
  }
  CommitAndCount(rank);
}

// The first half are 16 x 16, the others 8 x 8.
void CommitTiny(Rank& rank, const ProcessGrid& grid, bool together, int matrices) {
  constexpr std::size_t kSide = 16;
  rank.matrices = matrices;
  rank.weights.assign(matrices * kSide * kSide, 1.0f);
  rank.gradient.assign(kSide * kSide, 1.0f);
  rank.device = *CreateHostDevice();
  RuntimeOptions options;
  options.topology.grid = grid;
  options.pass_through = PassThrough::kNever;
  std::vector<double> costs = {11};
  if (together) {
    // A launch costs ten times what a matrix adds.
    for (int batch = 2; batch <= kTinyBatch; ++batch) costs.push_back(10 + batch);
  } else {
    options.limits.bucket_bytes = 0;
  }
  options.ownership.batch_costs = {costs, costs};
  for (int m = 0; m < matrices; ++m) options.ownership.matrix_table.push_back(2 * m / matrices);
  rank.runtime = *Runtime::Create(options, *rank.device, *rank.transport);
  for (int m = 0; m < matrices; ++m) {
    MatrixSpec spec;
    spec.name = absl::StrCat("m", m);
    spec.rows = spec.cols = 2 * m < matrices ? kSide : kSide / 2;
    spec.weight = &rank.weights[m * kSide * kSide];
    WEFT_CHECK(rank.runtime->AddMatrix(spec).ok());
  }
  CommitAndCount(rank);
}

// One step; what it took of the calling thread.
double RunStep(Rank& rank) {
  const Nanos begin = Clock::Steady().Now();
  for (int m = rank.matrices - 1; m >= 0; --m) {
    WEFT_CHECK(rank.runtime->Submit({.matrix = m, .gradient = rank.gradient.data()}).ok());
  }
  WEFT_CHECK(rank.runtime->Step().ok());
  const Nanos taken = Clock::Steady().Now() - begin;
  WEFT_CHECK(rank.runtime->WaitForStep().ok());
  return 1e-9 * static_cast<double>(taken);
}

template <typename CommitRank>
void TimeSteps(benchmark::State& state, CommitRank commit) {
  const ProcessGrid grid{1, static_cast<int>(state.range(0))};
  auto transports = *CreateLocalTransports({.topology = {.grid = grid}});
  std::vector<Rank> ranks(grid.size());
  for (int r = 0; r < grid.size(); ++r) ranks[r].transport = std::move(transports[r]);
  std::vector<std::thread> threads;
  for (Rank& rank : ranks)
    threads.emplace_back(
        [&] { commit(rank, grid, state.range(1) != 0, static_cast<int>(state.range(2))); });
  for (std::thread& thread : threads) thread.join();
  double microseconds = 0, metrics = 0;
  for (auto _ : state) {
    threads.clear();
    for (int r = 1; r < grid.size(); ++r) threads.emplace_back([&, r] { RunStep(ranks[r]); });
    const double taken = RunStep(ranks[0]);
    state.SetIterationTime(taken / static_cast<double>(ranks[0].ops));
    microseconds += 1e6 * taken;
    for (std::thread& thread : threads) thread.join();
    metrics += ranks[0].runtime->Metrics()->host_microseconds_per_job;
  }
  state.counters["ops"] = static_cast<double>(ranks[0].ops);
  state.counters["us_per_job"] =
      microseconds / static_cast<double>(state.iterations() * state.range(2));
  state.counters["metrics_us_per_job"] = metrics / static_cast<double>(state.iterations());
}

void Issue(benchmark::State& state) { TimeSteps(state, Commit); }
void Tiny(benchmark::State& state) { TimeSteps(state, CommitTiny); }

void Settings(benchmark::internal::Benchmark* issue, const char* what, int steps) {
  issue->ArgNames({"ranks", what, "matrices"})
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(steps)
      ->Repetitions(5)
      ->ReportAggregatesOnly();
}
BENCHMARK(Issue)->Args({1, 0, 200})->Args({1, 1, 200})->Args({2, 0, 200})->Apply([](auto* issue) {
  Settings(issue, "trace", 300);
});
BENCHMARK(Issue)->Args({1, 0, 1000})->Args({2, 0, 1000})->Apply([](auto* issue) {
  Settings(issue, "trace", 60);
});
BENCHMARK(Tiny)
    ->Args({1, 0, 1000})
    ->Args({1, 1, 1000})
    ->Args({2, 0, 1000})
    ->Args({2, 1, 1000})
    ->Apply([](auto* tiny) { Settings(tiny, "together", 60); });

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
