// How much of a step's communication the plan hides under compute: whole training steps of a model
// of equal matrices on emulated PCIe links, with compute alone, with communication alone, and with
// both. Compute is emulated too, as time in which a rank's one device is taken: by the trainer's
// layers, forward and backward, and by the products of NS.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/emulated_world.h"
#include "bench/paced_device.h"
#include "bench/plan_timeline.h"
#include "weft/plan_evaluator.h"
#include "weft/topology_preset.h"

namespace weft::bench {
namespace {

constexpr int kSide = 128;
constexpr double kSideRatio = 20;  // stands for a real side of 2560
constexpr std::uint16_t kOne = 0x3f80;

struct Settings {
  int matrices = 96, steps = 3;
  double slowdown = 6;
  double teraflops = 170;  // of the device that is emulated
  double layer_ms = 0;     // of the trainer; 0: what makes compute equal to communication
  bool one_by_one = false;
  std::string preset = "pcie-48gb-1nic";
  std::string trace;

  double FlopsPerSecond() const {
    return 1e12 * teraflops / (kSideRatio * kSideRatio * kSideRatio * slowdown);
  }
};

struct Model {
  const char* name;
  Layout layout;
  GradientKind gradient;
};
// As DDP would have it, and as FSDP2, which reduces gradients itself.
constexpr Model kModels[] = {
    {"replicated", Layout::kReplicated, GradientKind::kLocal},
    {"sharded", Layout::kSharded, GradientKind::kReduced},
};

struct Work {
  bool updates_first = false;
  double flops_per_second = 0;  // of NS; 0: no time
  double forward_seconds = 0, backward_seconds = 0;
};

void Commit(EmulatedRank& rank, const Model& model, const Settings& settings, const Work& work,
            const RuntimeOptions& options) {
  rank.device = std::make_unique<PacedDevice>(work.flops_per_second, work.updates_first);
  rank.memory.assign(static_cast<std::size_t>(settings.matrices + 1) * kSide * kSide, kOne);
  rank.runtime = *Runtime::Create(options, *rank.device, *rank.transport);
  for (int m = 0; m < settings.matrices; ++m) {
    MatrixSpec spec;
    spec.name = absl::StrCat("m", m);
    spec.rows = spec.cols = kSide;
    spec.dtype = DType::kBF16;
    spec.weight = &rank.memory[static_cast<std::size_t>(m) * kSide * kSide];
    spec.layout = model.layout;
    spec.gradient = model.gradient;
    spec.layer = m;
    MuonOptions muon;
    muon.newton_schulz.operand_type = DType::kBF16;
    muon.newton_schulz.segments = {0};
    spec.rule = muon;
    WEFT_CHECK(rank.runtime->AddMatrix(spec).ok());
  }
  const absl::Status status = rank.runtime->Commit();
  WEFT_CHECK(status.ok()) << status;
}

// `steps` steps of training; when each backward pass ended.
std::vector<Nanos> Train(EmulatedRank& rank, const Settings& settings, const Work& work,
                         int steps) {
  auto& device = static_cast<PacedDevice&>(*rank.device);
  const std::uint16_t* const gradient = &rank.memory[rank.memory.size() - kSide * kSide];
  const std::unique_ptr<Stream> trainer = device.CreateStream("trainer", StreamPriority::kNormal);
  std::vector<std::unique_ptr<Event>> ready;
  for (int m = 0; m < settings.matrices; ++m) ready.push_back(device.CreateEvent());
  std::vector<Nanos> ends(steps);
  for (Nanos& end : ends) {
    for (int m = 0; m < settings.matrices; ++m) {
      WEFT_CHECK(rank.runtime->ParameterNeeded(m, *trainer).ok());
      device.Occupy(*trainer, work.forward_seconds);
    }
    for (int m = settings.matrices - 1; m >= 0; --m) {
      device.Occupy(*trainer, work.backward_seconds);
      trainer->Record(*ready[m]);
      WEFT_CHECK(
          rank.runtime->Submit({.matrix = m, .gradient = gradient, .ready = ready[m].get()}).ok());
    }
    trainer->RecordTime(&end);
    WEFT_CHECK(rank.runtime->Step(trainer.get()).ok());
  }
  WEFT_CHECK(trainer->Synchronize(absl::Minutes(1)).ok());
  WEFT_CHECK(rank.runtime->WaitForStep().ok());
  return ends;
}

// Of a step.
struct Seconds {
  double measured = 0;   // median, slowest rank
  double predicted = 0;  // by links and device alone
  double evaluated = 0;  // by EvaluatePlan(), whose links are shared fairly
  // Predicted, from the end of backward to the verdict: reductions that backward has not hidden.
  double verdict = 0;
};

Seconds StepSeconds(const Model& model, const Settings& settings, const Topology& topology,
                    const Work& work, const std::string& trace) {
  RuntimeOptions options;
  options.topology = topology;
  AsLargeMatrices(options, !settings.one_by_one);
  options.trace = !trace.empty();
  // The links are slowed down, the analytic model's compute is not: it would think little of
  // owners.
  options.pass_through = PassThrough::kNever;
  EmulatedWorld world(topology);
  std::vector<double> by_rank(topology.grid.size());
  world.OnAll([&](int r, EmulatedRank& rank) {
    Commit(rank, model, settings, work, options);
    const std::vector<Nanos> ends = Train(rank, settings, work, 1 + settings.steps);
    std::vector<Nanos> steps;
    for (int i = 0; i < settings.steps; ++i) steps.push_back(ends[i + 1] - ends[i]);
    std::sort(steps.begin(), steps.end());
    by_rank[r] = 1e-9 * static_cast<double>(steps[steps.size() / 2]);
    if (!trace.empty()) WEFT_CHECK(rank.runtime->WriteTrace(trace).ok());
  });
  TimelineOptions timeline;
  timeline.topology = topology;
  timeline.forward_seconds = work.forward_seconds;
  timeline.backward_seconds = work.backward_seconds;
  timeline.updates_first = work.updates_first;
  timeline.steps = 1 + settings.steps;
  if (work.flops_per_second > 0) {
    timeline.compute_seconds = [&](const Op& op) {
      return op.kind == OpKind::kOrthogonalize ? op.flops / work.flops_per_second : 0.0;
    };
  }
  const Plan& plan = world.ranks()[0].runtime->plan();
  const Timeline times = TimelineOf(plan, timeline);
  TrainerModel trainer;
  trainer.forward_seconds.assign(settings.matrices, work.forward_seconds);
  trainer.backward_seconds.assign(settings.matrices, work.backward_seconds);
  trainer.updates_first = work.updates_first;
  const CostModel costs(topology, OnlyProducts(work.flops_per_second));
  const std::size_t last = times.backward_end.size() - 1;
  return {*std::max_element(by_rank.begin(), by_rank.end()),
          times.backward_end[last] - times.backward_end[last - 1],
          EvaluatePlan(plan, costs, trainer)->step_seconds,
          times.verdict_end[last] - times.backward_end[last]};
}

void Measure(const Model& model, const Settings& settings) {
  Topology links = *Preset(settings.preset, 2);
  links.grid.ranks_per_node = 2;
  links = Emulated(links, {kSideRatio, settings.slowdown});
  Topology free_links;
  free_links.grid = links.grid;

  const Seconds communication = StepSeconds(model, settings, links, {}, "");
  // Plain NS executes 20 m^3 FLOPs in five iterations; all ranks own equally many matrices.
  const double ns = 20.0 * kSide * kSide * kSide / settings.FlopsPerSecond() * settings.matrices /
                    links.grid.size();
  const double layer = settings.layer_ms > 0 ? 1e-3 * settings.layer_ms
                                             : (communication.predicted - ns) / settings.matrices;
  WEFT_CHECK(layer > 0) << "NS alone takes longer than communication";
  // A step is two phases, reductions before the verdict and publishing after it; no order of ops
  // within them gets below the longer side of each.
  const double phases =
      std::max(2 * layer / 3 * settings.matrices, communication.verdict) +
      std::max(ns + layer / 3 * settings.matrices, communication.predicted - communication.verdict);
  Work work = {false, settings.FlopsPerSecond(), layer / 3, 2 * layer / 3};
  const Seconds compute = StepSeconds(model, settings, free_links, work, "");
  for (const bool updates_first : {true, false}) {
    work.updates_first = updates_first;
    const char* const shared = updates_first ? "priority" : "equally";
    const std::string trace =
        settings.trace.empty()
            ? ""
            : absl::StrCat(settings.trace, model.name, updates_first ? "-priority" : "", ".json");
    const Seconds both = StepSeconds(model, settings, links, work, trace);
    const auto ratio = [&](double Seconds::*which) {
      return both.*which / std::max(compute.*which, communication.*which);
    };
    std::printf(
        "%-10s %-8s %6.1f %6.1f %6.1f %7.1f %7.1f %7.1f %6.3f %7.1f %7.1f %7.1f %7.1f %6.3f %7.1f "
        "%7.1f\n",
        model.name, shared, 1e3 * layer * settings.matrices / 3,
        2e3 * layer * settings.matrices / 3, 1e3 * ns, 1e3 * compute.measured,
        1e3 * communication.measured, 1e3 * both.measured, ratio(&Seconds::measured),
        1e3 * compute.predicted, 1e3 * communication.predicted, 1e3 * phases, 1e3 * both.predicted,
        ratio(&Seconds::predicted), 1e3 * communication.evaluated, 1e3 * both.evaluated);
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Whole steps with compute alone, communication alone, and both.");
  app.add_option("--matrices", settings.matrices)->capture_default_str();
  app.add_option("--steps", settings.steps)->capture_default_str();
  app.add_option("--slowdown", settings.slowdown)->capture_default_str();
  app.add_option("--teraflops", settings.teraflops)->capture_default_str();
  app.add_option("--layer-ms", settings.layer_ms,
                 "forward and backward of a layer; 0: what makes compute equal to communication")
      ->capture_default_str();
  app.add_flag("--one-by-one", settings.one_by_one, "no pairs of opposite collectives");
  app.add_option("--preset", settings.preset, "of the links")->capture_default_str();
  app.add_option("--trace", settings.trace, "begin of the traces' names");
  CLI11_PARSE(app, argc, argv);

  std::printf(
      "Steps of training: %d matrices of %d x %d bf16 on 2 nodes x 2 ranks; median of %d steps, "
      "ms\n",
      settings.matrices, kSide, kSide, settings.steps);
  std::printf("%-10s %-8s %20s %30s %38s %15s\n", "", "device", "------ compute -----",
              "---------- measured ----------", "----- by links and device alone ------",
              "-- evaluator --");
  std::printf("%-10s %-8s %6s %6s %6s %7s %7s %7s %6s %7s %7s %7s %7s %6s %7s %7s\n", "layout",
              "shared", "fwd", "bwd", "NS", "compute", "comm", "both", "ratio", "compute", "comm",
              "phases", "both", "ratio", "comm", "both");
  for (const Model& model : kModels) Measure(model, settings);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) { return weft::bench::Main(argc, argv); }
