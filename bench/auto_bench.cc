// Whether strategy `auto` takes the strategy that is truly the fastest: every feasible one is run
// by the runtime on emulated links and devices, in turn, and the one that `auto` chose by
// prediction is held against them.
//
// Right, as it was laid down before anything was measured: the median step of the choice is at most
// 1 % above the least median of all. Strategies whose plans have the same ops are run as one.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "bench/auto_cases.h"
#include "bench/emulated_world.h"
#include "bench/paced_device.h"
#include "bench/plan_timeline.h"
#include "weft/auto_strategy.h"
#include "weft/topology_preset.h"

namespace weft::bench {
namespace {

constexpr double kTie = 1.01;

struct Settings {
  int rounds = 7, steps = 3;
  std::string only;
  int random = 0;
  unsigned seed = 1;
  double slower = 1;
};

Topology LinksOf(const AutoCase& which) {
  Topology links = *Preset(which.preset, which.nodes);
  links.grid.ranks_per_node = which.ranks_per_node;
  links.nics_per_node = std::min(links.nics_per_node, which.ranks_per_node);
  if (which.ethernet) links.inter = kTenGigabit;
  return Emulated(links, {which.side_ratio, which.slowdown});
}

double FlopsPerSecond(const AutoCase& which) {
  return 1e12 * which.teraflops / (std::pow(which.side_ratio, 3) * which.slowdown);
}

int MatricesOf(const AutoCase& which) {
  int matrices = 0;
  for (const AutoShape& shape : which.shapes) matrices += shape.count;
  return matrices;
}

TrainerModel TrainerOf(const AutoCase& which) {
  TrainerModel trainer;
  if (which.forward_ms == 0) return trainer;
  const double seconds = 1e-3 * which.forward_ms * which.slowdown;
  trainer.forward_seconds.assign(MatricesOf(which), seconds);
  trainer.backward_seconds.assign(MatricesOf(which), 2 * seconds);
  return trainer;
}

RuntimeOptions OptionsOf(const AutoCase& which) {
  RuntimeOptions options;
  options.topology = LinksOf(which);
  options.costs =
      std::make_shared<const CostModel>(options.topology, OnlyProducts(FlopsPerSecond(which)));
  options.limits.bucket_bytes = static_cast<std::int64_t>(
      static_cast<double>(options.limits.bucket_bytes) / (which.side_ratio * which.side_ratio));
  options.owner_time_limit = absl::InfiniteDuration();
  options.auto_strategy = TrainerOf(which);
  return options;
}

// Weights are null.
std::vector<MatrixSpec> SpecsOf(const AutoCase& which) {
  std::vector<MatrixSpec> specs;
  for (const AutoShape& shape : which.shapes) {
    for (int i = 0; i < shape.count; ++i) {
      MatrixSpec spec;
      spec.name = absl::StrCat("m", specs.size());
      spec.rows = shape.rows;
      spec.cols = shape.cols;
      spec.dtype = DType::kBF16;
      spec.layout = which.layout;
      spec.gradient = which.gradient;
      spec.layer = static_cast<int>(specs.size());
      MuonOptions muon;
      muon.newton_schulz.operand_type = DType::kBF16;
      spec.rule = muon;
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

// A world with runtimes of one strategy.
class Contender {
 public:
  Contender(const AutoCase& which, const RuntimeOptions& options)
      : which_(which), matrices_(MatricesOf(which)), world_(options.topology) {
    world_.OnAll([&](int, EmulatedRank& rank) { Commit(rank, options); });
    Run(1);  // the first step touches memory for the first time
  }

  // Adds the seconds of so many steps, each of the slowest rank.
  void Measure(int steps) {
    for (const double each : Run(steps)) seconds_.push_back(each);
  }
  double Median() {
    std::sort(seconds_.begin(), seconds_.end());
    return seconds_[seconds_.size() / 2];
  }
  // Half of the steps took between the two.
  std::pair<double, double> Quartiles() const {
    return {seconds_[seconds_.size() / 4], seconds_[seconds_.size() * 3 / 4]};
  }
  Runtime& runtime() { return *world_.ranks()[0].runtime; }

 private:
  static constexpr std::uint16_t kOne = 0x3f80;

  void Commit(EmulatedRank& rank, const RuntimeOptions& options) const {
    rank.device = std::make_unique<PacedDevice>(FlopsPerSecond(which_), /*priorities=*/true);
    std::vector<MatrixSpec> specs = SpecsOf(which_);
    std::size_t elements = 0, most = 0;
    for (const MatrixSpec& spec : specs) {
      const auto size = static_cast<std::size_t>(spec.rows * spec.cols);
      elements += size;
      most = std::max(most, size);
    }
    rank.memory.assign(elements + most, kOne);
    rank.runtime = *Runtime::Create(options, *rank.device, *rank.transport);
    std::uint16_t* weight = rank.memory.data() + most;
    for (MatrixSpec& spec : specs) {
      spec.weight = weight;
      weight += spec.rows * spec.cols;
      WEFT_CHECK(rank.runtime->AddMatrix(spec).ok());
    }
    const absl::Status status = rank.runtime->Commit();
    WEFT_CHECK(status.ok()) << status;
  }

  std::vector<double> Run(int steps) {
    return which_.forward_ms > 0 ? Train(steps) : Optimize(steps);
  }

  // From the end of one backward pass to that of the next.
  std::vector<double> Train(int steps) {
    const double forward = 1e-3 * which_.forward_ms * which_.slowdown;
    std::vector<std::vector<Nanos>> ends(world_.ranks().size(), std::vector<Nanos>(steps + 1));
    world_.OnAll([&](int r, EmulatedRank& rank) {
      auto& device = static_cast<PacedDevice&>(*rank.device);
      const std::unique_ptr<Stream> trainer =
          device.CreateStream("trainer", StreamPriority::kNormal);
      std::vector<std::unique_ptr<Event>> ready;
      for (int m = 0; m < matrices_; ++m) ready.push_back(device.CreateEvent());
      for (Nanos& end : ends[r]) {
        for (int m = 0; m < matrices_; ++m) {
          WEFT_CHECK(rank.runtime->ParameterNeeded(m, *trainer).ok());
          device.Occupy(*trainer, forward);
        }
        for (int m = matrices_ - 1; m >= 0; --m) {
          device.Occupy(*trainer, 2 * forward);
          trainer->Record(*ready[m]);
          Submit(rank, m, ready[m].get());
        }
        trainer->RecordTime(&end);
        WEFT_CHECK(rank.runtime->Step(trainer.get()).ok());
      }
      WEFT_CHECK(trainer->Synchronize(absl::Minutes(1)).ok());
      WEFT_CHECK(rank.runtime->WaitForStep().ok());
    });
    std::vector<double> seconds;
    const auto end_of = [&](int step) {
      Nanos last = 0;
      for (const auto& by_rank : ends) last = std::max(last, by_rank[step]);
      return last;
    };
    for (int step = 0; step < steps; ++step) {
      seconds.push_back(1e-9 * static_cast<double>(end_of(step + 1) - end_of(step)));
    }
    return seconds;
  }

  // From the last rank's first gradient to the last delivery.
  std::vector<double> Optimize(int steps) {
    std::vector<double> seconds;
    for (int step = 0; step < steps; ++step) {
      Clock& clock = Clock::Steady();
      std::vector<Nanos> began(world_.ranks().size());
      world_.OnAll([&](int r, EmulatedRank& rank) {
        began[r] = clock.Now();
        for (int m = matrices_ - 1; m >= 0; --m) Submit(rank, m, nullptr);
        WEFT_CHECK(rank.runtime->Step().ok());
        WEFT_CHECK(rank.runtime->WaitForStep().ok());
      });
      const Nanos begin = *std::max_element(began.begin(), began.end());
      seconds.push_back(1e-9 * static_cast<double>(clock.Now() - begin));
    }
    return seconds;
  }

  static void Submit(EmulatedRank& rank, int matrix, Event* ready) {
    WEFT_CHECK(
        rank.runtime->Submit({.matrix = matrix, .gradient = rank.memory.data(), .ready = ready})
            .ok());
  }

  const AutoCase& which_;
  const int matrices_;
  EmulatedWorld world_;
  std::vector<double> seconds_;
};

// Of a step, by the order in which emulated links serve: what the evaluator's fair links are not.
double SecondsByLinks(const AutoCase& which, const Plan& plan, const Topology& links) {
  TimelineOptions timeline;
  timeline.topology = links;
  timeline.updates_first = true;
  timeline.forward_seconds = 1e-3 * which.forward_ms * which.slowdown;
  timeline.backward_seconds = 2 * timeline.forward_seconds;
  timeline.compute_seconds = [&](const Op& op) {
    return op.kind == OpKind::kOrthogonalize ? op.flops / FlopsPerSecond(which) : 0.0;
  };
  timeline.steps = which.forward_ms > 0 ? 3 : 1;
  const Timeline times = TimelineOf(plan, timeline);
  return which.forward_ms > 0 ? times.backward_end[2] - times.backward_end[1] : times.delivered[0];
}

// Of what runs alone, whatever it is called.
std::uint64_t FingerprintOfOps(Plan plan) {
  plan.strategy = Strategy::kOwner;
  for (PlanMatrix& matrix : plan.matrices) {
    matrix.path.clear();
    matrix.fallback.clear();
    matrix.alternative_peak_bytes = -1;
  }
  return Fingerprint(plan);
}

// "24 of 64 x 64, links of h100-nvlink, 700 TFLOP/s".
std::string Description(const AutoCase& which) {
  std::string text =
      absl::StrJoin(which.shapes, " and ", [](std::string* out, const AutoShape& shape) {
        absl::StrAppend(out, shape.count, " of ", shape.rows, " x ", shape.cols);
      });
  absl::StrAppend(&text, " for sides ", which.side_ratio, " times as long, links of ", which.preset,
                  which.ethernet ? " with 10G Ethernet" : "", ", ", which.teraflops, " TFLOP/s");
  if (which.forward_ms > 0) {
    absl::StrAppend(&text, ", forward ", which.forward_ms, " ms per matrix");
  }
  return absl::StrCat(text, ", slowed down ", which.slowdown, " times");
}

struct Entry {
  std::vector<Strategy> strategies;  // whose plans are this one
  std::uint64_t ops = 0;
  double predicted = 0;
  double by_links = 0;
  std::unique_ptr<Contender> contender;
  double median = 0;

  std::string Names() const {
    return absl::StrJoin(strategies, "=", [](std::string* out, Strategy strategy) {
      out->append(std::string(Name(strategy)));
    });
  }
};

struct Outcome {
  bool right = false;
  double ratio = 0;  // the choice over the fastest
};

Outcome Compare(const AutoCase& which, const Settings& settings) {
  RuntimeOptions options = OptionsOf(which);
  // By a runtime, on all ranks.
  StrategyReport report;
  std::uint64_t chosen_plan = 0;
  {
    Contender chosen(which, options);
    report = *chosen.runtime().strategy_report();
    chosen_plan = Fingerprint(chosen.runtime().plan());
  }
  options.auto_strategy.reset();
  std::vector<Entry> entries;
  std::size_t chosen_index = 0;
  for (const StrategyAlternative& each : report.alternatives) {
    if (!each.infeasible.empty()) continue;
    options.strategy = each.strategy;
    const Plan plan = *PlanFor(SpecsOf(which), options);
    const std::uint64_t ops = FingerprintOfOps(plan);
    auto same = std::find_if(entries.begin(), entries.end(),
                             [&](const Entry& entry) { return entry.ops == ops; });
    if (same == entries.end()) {
      Entry entry;
      entry.ops = ops;
      entry.predicted = each.step_seconds;
      entry.by_links = SecondsByLinks(which, plan, options.topology);
      entry.contender = std::make_unique<Contender>(which, options);
      entries.push_back(std::move(entry));
      same = entries.end() - 1;
    }
    same->strategies.push_back(each.strategy);
    if (each.strategy != report.strategy) continue;
    WEFT_CHECK(Fingerprint(plan) == chosen_plan) << "the choice is not what was compared";
    chosen_index = static_cast<std::size_t>(same - entries.begin());
  }
  for (int round = 0; round < settings.rounds; ++round) {
    for (Entry& entry : entries) entry.contender->Measure(settings.steps);
  }
  for (Entry& entry : entries) entry.median = entry.contender->Median();
  const Entry* const chosen = &entries[chosen_index];
  const auto fastest =
      std::min_element(entries.begin(), entries.end(),
                       [](const Entry& a, const Entry& b) { return a.median < b.median; });
  Outcome outcome;
  outcome.ratio = chosen->median / fastest->median;
  outcome.right = outcome.ratio <= kTie;
  std::printf("%-42s %d x %d  %-10s %-7s %-20s %-20s %6.3f  %s\n", which.name, which.nodes,
              which.ranks_per_node, std::string(Name(which.layout)).c_str(),
              which.gradient == GradientKind::kLocal ? "local" : "reduced",
              std::string(Name(report.strategy)).c_str(), fastest->Names().c_str(), outcome.ratio,
              outcome.right ? "right" : "WRONG");
  std::printf("    %s\n", Description(which).c_str());
  for (const Entry& entry : entries) {
    const auto [low, high] = entry.contender->Quartiles();
    std::printf(
        "    %-30s measured %7.1f (%7.1f to %7.1f)  predicted %7.1f  ratio %5.2f  links %7.1f\n",
        entry.Names().c_str(), 1e3 * entry.median, 1e3 * low, 1e3 * high, 1e3 * entry.predicted,
        entry.predicted / entry.median, 1e3 * entry.by_links);
  }
  std::fflush(stdout);
  return outcome;
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Every feasible strategy, run and timed, against the choice of strategy auto.");
  app.add_option("--rounds", settings.rounds, "of all strategies in turn")->capture_default_str();
  app.add_option("--steps", settings.steps, "of each strategy in a round")->capture_default_str();
  app.add_option("--only", settings.only, "letters of cases, A for the first");
  app.add_option("--random", settings.random, "so many drawn ones instead");
  app.add_option("--seed", settings.seed, "of the draw")->capture_default_str();
  app.add_option(
         "--slower", settings.slower,
         "by which all links, devices and trainers are slowed down further: on a busy machine, "
         "where threads wake late")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  std::printf(
      "Strategies on emulated links: median of %d steps each, ms, quartiles in brackets; right: "
      "the "
      "choice is within 1 %% of the fastest\n",
      settings.rounds * settings.steps);
  std::printf("%-42s %s   %-10s %-7s %-20s %-20s %s\n", "case", "grid", "layout", "grads", "auto",
              "fastest", "auto / fastest");
  int right = 0, cases = 0;
  double worst = 1;
  const std::vector<AutoCase> all =
      settings.random > 0 ? DrawAutoCases(settings.random, settings.seed) : AutoCases();
  for (std::size_t i = 0; i < all.size(); ++i) {
    AutoCase which = all[i];
    which.slowdown *= settings.slower;
    const char letter = static_cast<char>('A' + i % 26);
    if (!settings.only.empty() && settings.only.find(letter) == std::string::npos) continue;
    const Outcome outcome = Compare(which, settings);
    ++cases;
    right += outcome.right ? 1 : 0;
    worst = std::max(worst, outcome.ratio);
  }
  std::printf("%d of %d right, at worst %.3f of the fastest\n", right, cases, worst);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) { return weft::bench::Main(argc, argv); }
