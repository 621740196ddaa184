// How long predicting a step takes: EvaluatePlan() for each strategy that serves a layout, with a
// trainer and without, 336 matrices on 1,024 ranks unless told otherwise.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "bench/transformer_matrices.h"
#include "weft/clock.h"
#include "weft/strategy_choice.h"
#include "weft/topology_preset.h"

namespace {

double Seconds(weft::Nanos begin) {
  return 1e-9 * static_cast<double>(weft::Clock::Steady().Now() - begin);
}

}  // namespace

int main(int argc, char** argv) {
  int nodes = 128, matrices = 336;
  double layer_ms = 0.5;
  std::string preset = "h100-nvlink", layout = "replicated", only;
  CLI::App app("Times EvaluatePlan().");
  app.add_option("--nodes", nodes)->capture_default_str();
  app.add_option("--preset", preset)->capture_default_str();
  app.add_option("--matrices", matrices)->capture_default_str();
  app.add_option("--layout", layout)->capture_default_str();
  app.add_option("--layer-ms", layer_ms, "forward of a matrix's layer; backward takes twice that")
      ->capture_default_str();
  app.add_option("--only", only, "one strategy");
  CLI11_PARSE(app, argc, argv);

  weft::PlanRequest request;
  request.topology = weft::Preset(preset, nodes).value();
  request.check_gradients = true;
  const weft::CostModel model(request.topology);
  request.forms = weft::ChooseForms(model);
  request.matrices = weft::bench::TransformerMatrices(matrices, weft::ParseLayout(layout).value());
  for (int m = 0; m < matrices; ++m) {
    weft::PlanMatrix& matrix = request.matrices[m];
    matrix.dtype = weft::DType::kBF16;
    matrix.layer = m / 4;
    // Ten long products of five plain iterations, symmetric.
    matrix.flops =
        15e0 * 2560.0 * static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
  }
  weft::TrainerModel trainer;
  trainer.forward_seconds.assign(matrices, 1e-3 * layer_ms);
  trainer.backward_seconds.assign(matrices, 2e-3 * layer_ms);
  std::printf("%s, %d matrices on %d ranks (%s)\n", layout.c_str(), matrices,
              request.topology.grid.size(), preset.c_str());
  for (const weft::Strategy strategy : weft::AllStrategies()) {
    const std::string name(weft::Name(strategy));
    if (!only.empty() && only != name) continue;
    request.strategy = strategy;
    const weft::Nanos begin = weft::Clock::Steady().Now();
    const absl::StatusOr<weft::Plan> plan = weft::BuildPlan(request);
    if (!plan.ok()) continue;
    std::printf("%-10s %6zu ops, built in %.2f s\n", name.c_str(), plan->ops.size(),
                Seconds(begin));
    for (const bool trains : {false, true}) {
      const weft::Nanos again = weft::Clock::Steady().Now();
      const auto prediction =
          weft::EvaluatePlan(*plan, model, trains ? trainer : weft::TrainerModel{});
      const double took = Seconds(again);
      if (!prediction.ok()) {
        std::fprintf(stderr, "%s\n", std::string(prediction.status().message()).c_str());
        return 1;
      }
      std::printf("  %-15s evaluated in %.2f s: step %.1f ms, exposed %.1f ms; %s\n",
                  trains ? "with trainer" : "without trainer", took, 1e3 * prediction->step_seconds,
                  1e3 * prediction->exposed_seconds, weft::BoundText(*prediction).c_str());
    }
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("peak memory %.0f MiB\n", static_cast<double>(usage.ru_maxrss) / 1024);
  return 0;
}
