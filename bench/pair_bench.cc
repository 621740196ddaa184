// What pairs of opposite collectives are worth in groups of two: a step of nothing but reducing and
// publishing, with and without them, in turn, on emulated links.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/traffic.h"
#include "weft/topology_preset.h"

namespace weft::bench {
namespace {

struct Settings {
  int matrices = 32, rounds = 5;
};

struct Case {
  const char* preset;
  int nodes, ranks_per_node;
  double slowdown;
};
// Operations of some 10 ms each, in which what threads cost is little.
constexpr Case kCases[] = {
    {"h100-nvlink", 2, 4, 30}, {"pcie-48gb-2nic", 2, 4, 3}, {"consumer-2", 1, 2, 3}};

Traffic Make(const Topology& topology, const Settings& settings, bool pairs) {
  RuntimeOptions options;
  options.topology = topology;
  AsLargeMatrices(options, pairs);
  return Traffic(options, settings.matrices, GradientKind::kLocal);
}

void Compare(const Case& which, const Settings& settings) {
  Topology topology = *Preset(which.preset, which.nodes);
  topology.grid.ranks_per_node = which.ranks_per_node;
  topology = Emulated(topology, {kTrafficSideRatio, which.slowdown});
  Traffic apart = Make(topology, settings, false), pairs = Make(topology, settings, true);
  for (int round = 0; round < settings.rounds; ++round) {
    apart.Measure();
    pairs.Measure();
  }
  std::printf("%-15s %d x %d %9.1f %9.1f %9.1f %9.1f %7.2f %7.2f %9.1f %9.1f\n", which.preset,
              which.nodes, which.ranks_per_node, 1e3 * apart.Median(), 1e3 * apart.by_links(),
              1e3 * pairs.Median(), 1e3 * pairs.by_links(), apart.Median() / pairs.Median(),
              apart.by_links() / pairs.by_links(), 1e3 * apart.predicted(),
              1e3 * pairs.predicted());
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Reducing and publishing one by one, and in pairs.");
  app.add_option("--matrices", settings.matrices)->capture_default_str();
  app.add_option("--rounds", settings.rounds)->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  std::printf(
      "Reducing and publishing %d matrices of %d x %d bf16: median of %d steps, ms; links: by the "
      "emulated links alone\n",
      settings.matrices, kTrafficSide, kTrafficSide, settings.rounds);
  std::printf("%-15s %5s %19s %19s %15s %19s\n", "", "", "--- one by one ----", "----- pairs -----",
              "--- ratio ---", "---- evaluator ----");
  std::printf("%-15s %5s %9s %9s %9s %9s %7s %7s %9s %9s\n", "links", "grid", "measured", "links",
              "measured", "links", "seen", "links", "apart", "pairs");
  for (const Case& each : kCases) Compare(each, settings);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) { return weft::bench::Main(argc, argv); }
