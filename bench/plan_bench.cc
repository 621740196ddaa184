// How long the plan of a whole world takes, with its proof, how much memory, and how long that of
// one rank: 4,096 matrices on 1,024 ranks unless told otherwise. One strategy and layout per run,
// since memory is the process's peak.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "bench/transformer_matrices.h"
#include "weft/clock.h"
#include "weft/plan.h"

namespace {

double Seconds(weft::Nanos begin) {
  return 1e-9 * static_cast<double>(weft::Clock::Steady().Now() - begin);
}

}  // namespace

int main(int argc, char** argv) {
  int nodes = 128, ranks_per_node = 8, matrices = 4096;
  std::string strategy = "owner", layout = "replicated";
  CLI::App app("Times BuildPlan().");
  app.add_option("--nodes", nodes)->capture_default_str();
  app.add_option("--ranks-per-node", ranks_per_node)->capture_default_str();
  app.add_option("--matrices", matrices)->capture_default_str();
  app.add_option("--strategy", strategy)->capture_default_str();
  app.add_option("--layout", layout)->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  weft::PlanRequest request;
  request.topology.grid = {nodes, ranks_per_node};
  request.strategy = weft::ParseStrategy(strategy).value();
  request.check_gradients = true;
  request.matrices = weft::bench::TransformerMatrices(matrices, weft::ParseLayout(layout).value());
  for (weft::PlanMatrix& matrix : request.matrices) {
    matrix.flops = 1e9 * static_cast<double>(matrix.rows + matrix.cols);
  }
  const weft::Nanos begin = weft::Clock::Steady().Now();
  const absl::StatusOr<weft::Plan> plan = weft::BuildPlan(request);
  const double built = Seconds(begin);
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", std::string(plan.status().message()).c_str());
    return 1;
  }
  const weft::Nanos again = weft::Clock::Steady().Now();
  const bool valid = weft::ValidatePlan(*plan).ok();
  const double proven = Seconds(again);
  const weft::Nanos alone = weft::Clock::Steady().Now();
  const bool one = weft::BuildRankPlan(request, request.topology.grid.size() / 2).ok();
  const double rank_plan = Seconds(alone);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%s, %s: %d matrices on %d ranks, %zu ops\n", strategy.c_str(), layout.c_str(),
              matrices, request.topology.grid.size(), plan->ops.size());
  std::printf("built and proven in %.2f s, of which the proof is %.2f s; peak memory %.0f MiB\n",
              built, proven, static_cast<double>(usage.ru_maxrss) / 1024);
  std::printf("one rank's own plan in %.0f ms\n", 1e3 * rank_plan);
  return valid && one ? 0 : 1;
}
