// What fetching owned weights ahead is worth: whole training steps of a model of equal layers on
// emulated links, layout owned, with the broadcasts between nodes and inside them issued when a
// layer is needed, or ahead of that. Ranks begin each step together, so that forward shows all the
// communication that it does not hide itself.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/emulated_world.h"
#include "bench/paced_device.h"
#include "bench/plan_timeline.h"
#include "collectives/local/links.h"
#include "weft/plan_cost.h"
#include "weft/topology_preset.h"

namespace weft::bench {
namespace {

constexpr int kSide = 128;
constexpr double kSideRatio = 20;  // stands for a real side of 2560
constexpr int kPerLayer = 4;
constexpr std::uint16_t kOne = 0x3f80;

struct Case {
  const char* preset;
  ProcessGrid grid;
  int nics_per_node;
  double slowdown;
};
// A layer's way between nodes takes some 20 to 40 ms, in which what threads cost is little.
constexpr Case kCases[] = {
    {"pcie-48gb-1nic", {2, 2}, 1, 6},
    {"pcie-48gb-1nic", {4, 4}, 1, 6},
    {"h100-nvlink", {4, 4}, 4, 80},
};

struct Variant {
  const char* name;
  int inter_ahead, intra_ahead;
  bool keep;
};
constexpr Variant kVariants[] = {
    {"just in time", 0, 0, false},
    {"staggered", 2, 0, false},
    {"default", 2, 1, false},
    {"default, kept", 2, 1, true},
};

struct Settings {
  int layers = 12, steps = 3;
  std::vector<double> loads = {0.5, 1, 2};
  std::string only;
  bool root_complexes = true;
  std::string trace;
};

struct Work {
  double forward_seconds = 0;  // of a layer; backward takes twice as long
  bool host_waits = false;     // the trainer's host waits for weights and for its device
};

void Commit(EmulatedRank& rank, const Settings& settings, const RuntimeOptions& options) {
  rank.device = std::make_unique<PacedDevice>(0, false);
  const int matrices = settings.layers * kPerLayer;
  rank.memory.assign(static_cast<std::size_t>(matrices + 1) * kSide * kSide, kOne);
  rank.runtime = *Runtime::Create(options, *rank.device, *rank.transport);
  CustomRule rule;
  rule.enqueue = [](const RuleContext&) { return absl::OkStatus(); };
  rule.state_bytes_per_element = 0;
  rule.flops = 1;
  for (int m = 0; m < matrices; ++m) {
    MatrixSpec spec;
    spec.name = absl::StrCat("m", m);
    spec.rows = spec.cols = kSide;
    spec.dtype = DType::kBF16;
    spec.weight = &rank.memory[static_cast<std::size_t>(m) * kSide * kSide];
    spec.layout = Layout::kOwned;
    spec.layer = m / kPerLayer;
    spec.rule = rule;
    WEFT_CHECK(rank.runtime->AddMatrix(spec).ok());
  }
  const absl::Status status = rank.runtime->Commit();
  WEFT_CHECK(status.ok()) << status;
}

// One rank's trainer.
class Trainer {
 public:
  Trainer(EmulatedRank& rank, const Settings& settings, const Work& work)
      : rank_(rank),
        settings_(settings),
        work_(work),
        device_(static_cast<PacedDevice&>(*rank.device)),
        stream_(device_.CreateStream("trainer", StreamPriority::kNormal)) {
    for (int l = 0; l < settings.layers; ++l) ready_.push_back(device_.CreateEvent());
  }

  struct Times {
    Nanos begin = 0, forward = 0, end = 0;
  };
  Times Step() {
    Times times;
    times.begin = device_.clock().Now();
    for (int l = 0; l < settings_.layers; ++l) {
      Need(l);
      Compute(work_.forward_seconds);
      Release(l);
    }
    stream_->RecordTime(&times.forward);
    const std::uint16_t* const gradient = &rank_.memory[rank_.memory.size() - kSide * kSide];
    for (int l = settings_.layers - 1; l >= 0; --l) {
      Need(l);
      Compute(2 * work_.forward_seconds);
      stream_->Record(*ready_[l]);
      for (int m = (l + 1) * kPerLayer - 1; m >= l * kPerLayer; --m) {
        const auto job =
            rank_.runtime->Submit({.matrix = m, .gradient = gradient, .ready = ready_[l].get()});
        WEFT_CHECK(job.ok()) << job.status();
      }
      Release(l);
    }
    WEFT_CHECK(rank_.runtime->Step(stream_.get()).ok());
    WEFT_CHECK(rank_.runtime->WaitForStep().ok());
    WEFT_CHECK(stream_->Synchronize(absl::Minutes(1)).ok());
    times.end = device_.clock().Now();
    return times;
  }

 private:
  void Need(int layer) {
    const absl::Status status = work_.host_waits ? rank_.runtime->WaitForLayer(layer)
                                                 : rank_.runtime->ParameterNeeded(layer, *stream_);
    WEFT_CHECK(status.ok()) << status;
  }
  void Compute(double seconds) {
    device_.Occupy(*stream_, seconds);
    if (work_.host_waits) WEFT_CHECK(stream_->Synchronize(absl::Minutes(1)).ok());
  }
  void Release(int layer) {
    const absl::Status status =
        rank_.runtime->ParameterReleased(layer, work_.host_waits ? nullptr : stream_.get());
    WEFT_CHECK(status.ok()) << status;
  }

  EmulatedRank& rank_;
  const Settings& settings_;
  const Work& work_;
  PacedDevice& device_;
  std::vector<std::unique_ptr<Event>> ready_;
  std::unique_ptr<Stream> stream_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Of a step: milliseconds on the slowest rank, medians.
struct Milliseconds {
  double forward = 0, step = 0;
};
struct Result {
  Milliseconds measured;
  Milliseconds predicted;  // by links and device alone
  // Of fetched weights, the most on any rank, in times the bytes of the model.
  double held = 0;
  double moved = 0;  // received in a step
};

Result Run(const Topology& topology, const Settings& settings, const Variant& variant,
           const Work& work, const std::string& trace) {
  RuntimeOptions options;
  options.topology = topology;
  options.limits.inter_layers_ahead = variant.inter_ahead;
  options.limits.intra_layers_ahead = variant.intra_ahead;
  options.limits.keep_through_backward = variant.keep;
  AsLargeMatrices(options);
  options.trace = !trace.empty();
  EmulatedWorld world(topology);
  const int ranks = topology.grid.size();
  const int steps = 1 + settings.steps;  // the first one touches memory for the first time
  std::vector<std::vector<Trainer::Times>> times(ranks);
  std::barrier together(ranks);
  world.OnAll([&](int r, EmulatedRank& rank) {
    Commit(rank, settings, options);
    {
      Trainer trainer(rank, settings, work);
      for (int step = 0; step < steps; ++step) {
        together.arrive_and_wait();
        times[r].push_back(trainer.Step());
      }
    }
    if (!trace.empty()) WEFT_CHECK(rank.runtime->WriteTrace(trace).ok());
  });
  Result result;
  std::vector<double> forward, whole;
  for (int step = 1; step < steps; ++step) {
    double slowest = 0, longest = 0;
    for (const auto& rank : times) {
      slowest =
          std::max(slowest, 1e-6 * static_cast<double>(rank[step].forward - rank[step].begin));
      longest = std::max(longest, 1e-6 * static_cast<double>(rank[step].end - rank[step].begin));
    }
    forward.push_back(slowest);
    whole.push_back(longest);
  }
  result.measured = {Median(forward), Median(whole)};

  const Plan& plan = world.ranks()[0].runtime->plan();
  TimelineOptions timeline;
  timeline.topology = topology;
  timeline.forward_seconds = work.forward_seconds;
  timeline.backward_seconds = 2 * work.forward_seconds;
  timeline.host_waits = work.host_waits;
  const Timeline predicted = TimelineOf(plan, timeline);
  result.predicted = {1e3 * predicted.forward_end[0], 1e3 * predicted.delivered[0]};

  for (int rank = 0; rank < ranks; ++rank) {
    const RankBuffers buffers = BuffersOfRank(plan, rank);
    std::set<std::int32_t> fetched;
    for (const PlanMatrix& matrix : plan.matrices) {
      fetched.insert(matrix.buffers[static_cast<int>(Slot::kWeight)]);
    }
    std::int64_t held = 0, moved = 0;
    for (const std::int32_t buffer : fetched) held += buffer < 0 ? 0 : buffers.bytes[buffer];
    for (const auto& lane : plan.lanes[rank]) {
      for (const std::int32_t index : lane) {
        const Op& op = plan.ops[index];
        if (op.kind != OpKind::kBroadcast || op.trigger != Trigger::kNeeded) continue;
        const std::vector<int>& part =
            plan.groups[op.group].parts[plan.groups[op.group].PartOf(rank)];
        if (part[op.root] != rank) moved += PayloadBytes(plan, op, rank);  // what it receives
      }
    }
    const auto model = 2.0 * kSide * kSide * kPerLayer * settings.layers;
    result.held = std::max(result.held, static_cast<double>(held) / model);
    result.moved = std::max(result.moved, static_cast<double>(moved) / model);
  }
  return result;
}

// What the fetches of a layer take on one lane if nothing else is under way, mean of all layers.
double LayerSeconds(const Topology& topology, const Settings& settings, Lane lane) {
  std::vector<MatrixSpec> specs;
  for (int m = 0; m < settings.layers * kPerLayer; ++m) {
    MatrixSpec spec;
    spec.name = absl::StrCat("m", m);
    spec.rows = spec.cols = kSide;
    spec.dtype = DType::kBF16;
    spec.layout = Layout::kOwned;
    spec.layer = m / kPerLayer;
    specs.push_back(spec);
  }
  RuntimeOptions options;
  options.topology = topology;
  AsLargeMatrices(options);
  const auto plan = PlanFor(specs, options);
  WEFT_CHECK(plan.ok()) << plan.status();
  double sum = 0;
  for (const Op& op : plan->ops) {
    WEFT_CHECK(op.form == CollectiveForm::kDirect) << "the timeline knows no other form";
  }
  for (int layer = 0; layer < settings.layers; ++layer) {
    collectives::local::Links links(topology);
    std::vector<Nanos> free(topology.grid.size(), 0);  // a lane does one at a time
    std::set<std::int32_t> once;
    for (const Op& op : plan->ops) {
      if (op.kind != OpKind::kBroadcast || op.lane != lane || op.trigger != Trigger::kNeeded) {
        continue;
      }
      if (plan->matrices[op.matrix].layer != layer || !once.insert(op.matrix).second) continue;
      for (const std::vector<int>& part : plan->groups[op.group].parts) {
        collectives::Operation wire;
        wire.kind = collectives::OpKind::kBroadcast;
        wire.dtype = DType::kBF16;
        wire.counts = {op.bytes};
        Nanos arrival = 0;
        for (const int rank : part) arrival = std::max(arrival, free[rank]);
        const Nanos end = links.Book(wire, part, arrival);
        for (const int rank : part) free[rank] = end;
      }
    }
    sum += 1e-9 * static_cast<double>(links.latest_end());
  }
  return sum / settings.layers;
}

void Measure(const Case& which, const Settings& settings) {
  Topology links = *Preset(which.preset, which.grid.nodes);
  links.grid = which.grid;
  links.nics_per_node = which.nics_per_node;
  if (!settings.root_complexes) links.root_complex_gigabytes_per_second = 0;
  links = Emulated(links, {kSideRatio, which.slowdown});
  Topology free_links;
  free_links.grid = links.grid;
  const double inter = LayerSeconds(links, settings, Lane::kInter);
  const double intra = LayerSeconds(links, settings, Lane::kIntra);
  std::printf(
      "\n%s, %d nodes x %d ranks, times %g: a layer between nodes %.1f ms, inside %.1f ms\n",
      which.preset, which.grid.nodes, which.grid.ranks_per_node, which.slowdown, 1e3 * inter,
      1e3 * intra);
  std::printf("%-7s %5s %-14s %32s %26s %22s\n", "", "", "", "----------- forward -----------",
              "--- exposed, by links ---", "-------- step --------");
  std::printf("%-7s %5s %-14s %9s %9s %6s %5s %9s %9s %6s %9s %9s %8s %8s\n", "host", "load",
              "fetched", "compute", "wall", "expo.", "left", "wall", "exposed", "left", "wall",
              "by links", "held", "moved");
  for (const bool host_waits : {true, false}) {
    for (const double load : settings.loads) {
      const Work work = {load * inter, host_waits};
      const Milliseconds compute = Run(free_links, settings, kVariants[2], work, "").measured;
      const double nominal = 1e3 * work.forward_seconds * settings.layers;
      double exposed_before = 0, predicted_before = 0;
      for (const Variant& variant : kVariants) {
        const std::string trace =
            settings.trace.empty()
                ? ""
                : absl::StrCat(settings.trace, which.preset, "-", which.grid.size(), "-", load,
                               host_waits ? "-waits-" : "-ahead-", &variant - kVariants, ".json");
        const Result result = Run(links, settings, variant, work, trace);
        const double exposed = result.measured.forward - compute.forward;
        const double predicted = result.predicted.forward - nominal;
        if (&variant == kVariants) exposed_before = exposed, predicted_before = predicted;
        std::printf(
            "%-7s %5.1f %-14s %9.1f %9.1f %6.1f %5.2f %9.1f %9.1f %6.2f %9.1f %9.1f %8.2f "
            "%8.2f\n",
            host_waits ? "waits" : "ahead", load, variant.name, compute.forward,
            result.measured.forward, exposed, exposed / exposed_before, result.predicted.forward,
            predicted, predicted / predicted_before, result.measured.step, result.predicted.step,
            result.held, result.moved);
        std::fflush(stdout);
      }
    }
  }
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Forward with owned weights fetched when they are needed, and ahead of that.");
  app.add_option("--layers", settings.layers)->capture_default_str();
  app.add_option("--steps", settings.steps)->capture_default_str();
  app.add_option("--loads", settings.loads,
                 "a layer's forward, in times that its weights take between nodes")
      ->capture_default_str();
  app.add_option("--only", settings.only, "e.g. h100-nvlink: no other links");
  app.add_flag("!--no-root-complexes", settings.root_complexes,
               "what root complexes carry is free");
  app.add_option("--trace", settings.trace, "begin of the traces' names");
  CLI11_PARSE(app, argc, argv);

  std::printf(
      "Owned weights: %d layers of %d matrices of %d x %d bf16; median of %d steps, ms; left: of "
      "what just in time exposes; held, moved: in models\n",
      settings.layers, kPerLayer, kSide, kSide, settings.steps);
  for (const Case& each : kCases) {
    if (settings.only.empty() || settings.only == each.preset) Measure(each, settings);
  }
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) { return weft::bench::Main(argc, argv); }
