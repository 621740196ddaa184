// What issuing a plan's ops costs the caller's thread: Submit() of every matrix and Step(), with
// rules that do nothing and gradients of one element, divided by the ops that this rank issues, and
// as us_per_job by the matrices. The wait for the step to finish is not timed.
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

struct Rank {
  std::unique_ptr<Device> device;
  std::unique_ptr<Transport> transport;
  std::vector<float> weights;
  std::unique_ptr<Runtime> runtime;
  std::int64_t ops = 0;  // that it issues in a step
};

void Commit(Rank& rank, const ProcessGrid& grid, bool trace, int matrices) {
  rank.weights.assign(matrices, 1.0f);
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
  WEFT_CHECK(rank.runtime->Commit().ok());
  for (const auto& lane : rank.runtime->plan().lanes[rank.transport->rank()]) {
    rank.ops += static_cast<std::int64_t>(lane.size());
  }
}

// One step; what it took of the calling thread.
double RunStep(Rank& rank) {
  const float gradient = 1;
  const Nanos begin = Clock::Steady().Now();
  for (int m = static_cast<int>(rank.weights.size()) - 1; m >= 0; --m) {
    WEFT_CHECK(rank.runtime->Submit({.matrix = m, .gradient = &gradient}).ok());
  }
  WEFT_CHECK(rank.runtime->Step().ok());
  const Nanos taken = Clock::Steady().Now() - begin;
  WEFT_CHECK(rank.runtime->WaitForStep().ok());
  return 1e-9 * static_cast<double>(taken);
}

void Issue(benchmark::State& state) {
  const ProcessGrid grid{1, static_cast<int>(state.range(0))};
  auto transports = *CreateLocalTransports({.topology = {.grid = grid}});
  std::vector<Rank> ranks(grid.size());
  for (int r = 0; r < grid.size(); ++r) ranks[r].transport = std::move(transports[r]);
  std::vector<std::thread> threads;
  for (Rank& rank : ranks)
    threads.emplace_back(
        [&] { Commit(rank, grid, state.range(1) != 0, static_cast<int>(state.range(2))); });
  for (std::thread& thread : threads) thread.join();
  double microseconds = 0;
  for (auto _ : state) {
    threads.clear();
    for (int r = 1; r < grid.size(); ++r) threads.emplace_back([&, r] { RunStep(ranks[r]); });
    const double taken = RunStep(ranks[0]);
    state.SetIterationTime(taken / static_cast<double>(ranks[0].ops));
    microseconds += 1e6 * taken;
    for (std::thread& thread : threads) thread.join();
  }
  state.counters["ops"] = static_cast<double>(ranks[0].ops);
  state.counters["us_per_job"] =
      microseconds / static_cast<double>(state.iterations() * state.range(2));
}
void Settings(benchmark::internal::Benchmark* issue, int steps) {
  issue->ArgNames({"ranks", "trace", "matrices"})
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(steps)
      ->Repetitions(5)
      ->ReportAggregatesOnly();
}
BENCHMARK(Issue)->Args({1, 0, 200})->Args({1, 1, 200})->Args({2, 0, 200})->Apply([](auto* issue) {
  Settings(issue, 300);
});
BENCHMARK(Issue)->Args({1, 0, 1000})->Args({2, 0, 1000})->Apply([](auto* issue) {
  Settings(issue, 60);
});

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
