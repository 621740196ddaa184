// What issuing a plan's ops costs the caller's thread: Submit() of every matrix and Step(), with
// rules that do nothing and gradients of one element, divided by the ops that this rank issues.
// The wait for the step to finish is not timed.
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

constexpr int kMatrices = 200;

struct Rank {
  std::unique_ptr<Device> device;
  std::unique_ptr<Transport> transport;
  std::vector<float> weights = std::vector<float>(kMatrices, 1.0f);
  std::unique_ptr<Runtime> runtime;
  std::int64_t ops = 0;  // that it issues in a step
};

void Commit(Rank& rank, const ProcessGrid& grid, bool trace) {
  rank.device = *CreateHostDevice();
  RuntimeOptions options;
  options.topology.grid = grid;
  options.trace = trace;
  rank.runtime = *Runtime::Create(options, *rank.device, *rank.transport);
  CustomRule rule;
  rule.enqueue = [](const RuleContext&) { return absl::OkStatus(); };
  for (int m = 0; m < kMatrices; ++m) {
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
  for (int m = kMatrices - 1; m >= 0; --m) {
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
  for (Rank& rank : ranks) threads.emplace_back([&] { Commit(rank, grid, state.range(1) != 0); });
  for (std::thread& thread : threads) thread.join();
  for (auto _ : state) {
    threads.clear();
    for (int r = 1; r < grid.size(); ++r) threads.emplace_back([&, r] { RunStep(ranks[r]); });
    state.SetIterationTime(RunStep(ranks[0]) / static_cast<double>(ranks[0].ops));
    for (std::thread& thread : threads) thread.join();
  }
  state.counters["ops"] = static_cast<double>(ranks[0].ops);
}
BENCHMARK(Issue)
    ->ArgNames({"ranks", "trace"})
    ->Args({1, 0})
    ->Args({1, 1})
    ->Args({2, 0})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(300)
    ->Repetitions(5)
    ->ReportAggregatesOnly();

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
