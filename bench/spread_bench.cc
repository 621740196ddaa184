// What spreading owners over inter groups is worth: publishing equal matrices with the owners that
// Weft chooses, and with all owners in one inter group, in turn. Links are emulated, the update is
// no work and gradients come reduced, so a step is nothing but publishing.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/traffic.h"
#include "weft/topology_preset.h"

namespace weft::bench {
namespace {

struct Case {
  const char* preset;
  int nics_per_node;
  double slowdown;
};
// Operations of some 10 ms each, in which what threads cost is little.
constexpr Case kCases[] = {{"h100-nvlink", 4, 30}, {"pcie-48gb-2nic", 2, 3}};

struct Settings {
  int nodes = 4, ranks_per_node = 4, matrices = 64, rounds = 5;
};

Traffic Make(const Topology& topology, const Settings& settings, bool one_group) {
  RuntimeOptions options;
  options.topology = topology;
  AsLargeMatrices(options);
  if (one_group) {
    for (int m = 0; m < settings.matrices; ++m) {
      options.ownership.owners.push_back(m % settings.nodes * settings.ranks_per_node);
    }
  }
  return Traffic(options, settings.matrices, GradientKind::kReduced);
}

void Compare(const Case& which, const Settings& settings) {
  Topology topology = *Preset(which.preset, settings.nodes);
  topology.grid.ranks_per_node = settings.ranks_per_node;
  topology.nics_per_node = which.nics_per_node;
  topology = Emulated(topology, {kTrafficSideRatio, which.slowdown});
  Traffic one = Make(topology, settings, true), spread = Make(topology, settings, false);
  for (int round = 0; round < settings.rounds; ++round) {
    one.Measure();
    spread.Measure();
  }
  const double ratio = one.Median() / spread.Median();
  std::printf("%-15s %4d %9.1f %9.1f %8.1f%% %9.1f %9.1f %8.1f%% %7.2f %7.2f %9.1f %9.1f\n",
              which.preset, topology.nics_per_node, 1e3 * one.Median(), 1e3 * one.by_links(),
              100 * one.by_links() / one.Median(), 1e3 * spread.Median(), 1e3 * spread.by_links(),
              100 * spread.by_links() / spread.Median(), ratio, one.by_links() / spread.by_links(),
              1e3 * one.predicted(), 1e3 * spread.predicted());
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Publishing with owners spread over inter groups and with owners in one of them.");
  app.add_option("--matrices", settings.matrices)->capture_default_str();
  app.add_option("--nodes", settings.nodes)->capture_default_str();
  app.add_option("--ranks-per-node", settings.ranks_per_node)->capture_default_str();
  app.add_option("--rounds", settings.rounds)->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  std::printf(
      "Publishing %d matrices of %d x %d bf16 on %d nodes x %d ranks: median of %d steps, "
      "ms; links: by the emulated links alone\n",
      settings.matrices, kTrafficSide, kTrafficSide, settings.nodes, settings.ranks_per_node,
      settings.rounds);
  std::printf("%-15s %4s %29s %29s %15s %19s\n", "", "", "---- one inter group ----",
              "-------- spread --------", "--- ratio ---", "--- evaluator ---");
  std::printf("%-15s %4s %9s %9s %9s %9s %9s %9s %7s %7s %9s %9s\n", "links", "NICs", "measured",
              "links", "links/seen", "measured", "links", "links/seen", "seen", "links", "one",
              "spread");
  for (const Case& each : kCases) Compare(each, settings);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) { return weft::bench::Main(argc, argv); }
