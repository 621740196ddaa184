#include "tools/weft/options.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/weft/json_file.h"
#include "tools/weft/status_macros.h"
#include "weft/topology_file.h"
#include "weft/topology_preset.h"

namespace weft::tool {
namespace {

using nlohmann::json;

// Of those ranks that are threads or processes of this machine.
constexpr int kMostRanksHere = 1024;
constexpr int kMostSteps = 1'000'000'000;
// More only wait for each other, and far more end the process.
constexpr int kMostThreads = 1024;
constexpr int kMostRepetitions = 1'000'000;

absl::Status Refuse(const std::string& what) { return absl::InvalidArgumentError(what); }

// The message of `status` behind the option it concerns.
absl::Status Under(const char* option, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(option, ": ", std::string(status.message())));
}

// As the parser wants them: what is wrong with a value, or nothing. An empty text would count as an
// option that is not given.
std::string NotEmpty(const std::string& text) { return text.empty() ? "must not be empty" : ""; }

// A heading of the help text.
class Group {
 public:
  Group(CLI::App& app, std::string name) : app_(app), name_(std::move(name)) {}

  template <typename T>
  CLI::Option* Option(const char* option, T& value, const char* what = "") const {
    CLI::Option* added = app_.add_option(option, value, what)->group(name_);
    if constexpr (std::is_same_v<T, std::string>) added->check(CLI::Validator(NotEmpty, ""));
    return added;
  }
  // A decimal number from `least` to `most`; left to itself, the parser takes 010 for 8 and cuts
  // what is too large. What stands in `value` before means "not given".
  template <typename T>
  CLI::Option* Integer(const char* option, T& value, T least, T most, const char* what = "") const {
    const auto check = [least, most](std::string& text) {
      T number = 0;
      const char* const end = text.data() + text.size();
      const auto [parsed, error] = std::from_chars(text.data(), end, number);
      if (error != std::errc() || parsed != end || number < least || number > most) {
        return absl::StrCat(Quoted(text), " is not an integer from ", least, " to ", most);
      }
      text = absl::StrCat(number);
      return std::string();
    };
    return Option(option, value, what)->transform(CLI::Validator(check, ""));
  }
  CLI::Option* Flag(const char* option, bool& value, const char* what) const {
    return app_.add_flag(option, value, what)->group(name_);
  }

 private:
  CLI::App& app_;
  const std::string name_;
};

CLI::Option* AddModel(CLI::App& app, Options& o) {
  return app
      .add_option("MODEL", o.model,
                  "A safetensors file, a model.safetensors.index.json, or a JSON shape manifest")
      ->check(CLI::Validator(NotEmpty, ""));
}

void AddGridOptions(const Group& world, Options& o) {
  world.Integer("--nodes", o.nodes, 1, kMostRanks, "Nodes [1]");
  world.Integer("--ranks-per-node", o.ranks_per_node, 1, kMostRanks, "Ranks on each node [1]");
  world.Option("--topology", o.topology, "JSON file with the grid and its links");
  world.Option("--preset", o.preset, "A well-known kind of node instead; weft presets lists them");
}

void AddNewtonSchulzOptions(const Group& group, Options& o) {
  group.Option("--dtype", o.dtype, "Operands of Newton-Schulz products: f32, bf16 or f16 [f32]");
  group.Option("--coefficients", o.coefficients,
               "quintic, polar_express, you, or a JSON file with [[a, b, c], ...] [quintic]");
  group.Integer("--iterations", o.iterations, 1, kMostNewtonSchulzIterations,
                "Newton-Schulz iterations [5, or one per triple of the file]");
  group.Option("--segments", o.segments,
               "Gram segments such as 2,2,1; none for plain products; auto [auto]");
}

void AddAdamWPatterns(const Group& group, Options& o) {
  group
      .Option("--adamw", o.adamw_patterns,
              "2-D tensors whose name matches this extended regular expression take AdamW, "
              "too (repeatable)")
      ->allow_extra_args(false);
}

// How ranks are started and what they may use.
void AddRankOptions(const Group& group, Options& o) {
  group.Option("--transport", o.transport,
               "local (ranks are threads) or gloo (ranks are processes) [local]");
  group.Integer("--threads", o.threads, 1, kMostThreads, "Threads of each rank's products [1]");
  group.Option("--deadline", o.deadline, "Longest wait for a peer, in seconds [600]");
  group.Integer("--rank", o.rank, 0, kMostRanks - 1,
                "With gloo: be this one rank, with --world and --store");
  group.Integer("--world", o.world, 1, kMostRanks, "Ranks in the world");
  group.Option("--store", o.store, "Directory that all ranks share, empty at the start");
  group.Integer("--error-fd", o.error_fd, 0, std::numeric_limits<int>::max())->group("");
}

void AddSharedOptions(CLI::App& app, Options& o) {
  AddModel(app, o)->required();

  const Group world(app, "World");
  AddGridOptions(world, o);
  world.Option("--strategy", o.strategy,
               "replicated, gather, owner, node_local or layerwise; auto: the one whose step is "
               "predicted to be shortest [owner]");
  world.Option("--layout", o.layout,
               "How ranks hold weights: replicated, sharded, node_sharded (over each node's "
               "ranks), or owned "
               "(plan alone) [sharded for gather]");
  world.Flag("--strict", o.strict, "Refuse plans that fall back to another path");

  world.Option("--owner-solver", o.owner_solver,
               "Who finds owners: milp (a program where simple search is not close to the best) "
               "or heuristic [milp]");
  world.Option("--owner-seconds", o.owner_seconds, "Longest time of the program [5]");
  world.Option("--pass-through", o.pass_through,
               "Which tensors get no owner, every rank updates them: never, auto (where repeating "
               "the work costs less) or always [auto]");

  const Group muon(app, "Muon");
  muon.Option("--lr", o.muon.lr, "Learning rate [0.02]");
  muon.Option("--momentum", o.muon.momentum, "Momentum [0.95]");
  muon.Flag("--no-nesterov", o.no_nesterov, "Plain momentum");
  muon.Option("--weight-decay", o.muon.weight_decay, "Decoupled weight decay [0]");
  muon.Option("--scale", o.scale, "original or match_rms_adamw [original]");
  AddNewtonSchulzOptions(muon, o);
  muon.Option("--eps", o.eps,
              "Divide by max(norm, EPS) as torch.optim.Muon does [off: floor 1e-30]");

  const Group adamw(app, "AdamW (tensors that are not 2-D)");
  AddAdamWPatterns(adamw, o);
  adamw.Option("--adamw-lr", o.adamw.lr, "Learning rate [0.001]");
  adamw.Option("--adamw-beta1", o.adamw.beta1, "First moment [0.9]");
  adamw.Option("--adamw-beta2", o.adamw.beta2, "Second moment [0.999]");
  adamw.Option("--adamw-eps", o.adamw.eps, "Added to the root of the second moment [1e-8]");
  adamw.Option("--adamw-weight-decay", o.adamw.weight_decay, "Decoupled decay [0.01]");
}

absl::StatusOr<Topology> TopologyOf(const Options& o) {
  Topology topology;
  if (!o.preset.empty()) {
    if (!o.topology.empty()) return Refuse("--topology and --preset exclude each other");
    auto preset = Preset(o.preset, std::max(o.nodes, 1));
    if (!preset.ok()) return Under("--preset", preset.status());
    topology = *preset;
    if (o.ranks_per_node != 0 && o.ranks_per_node != topology.grid.ranks_per_node) {
      return Refuse(absl::StrCat("--ranks-per-node ", o.ranks_per_node, " against ",
                                 topology.grid.ranks_per_node, " of --preset ", o.preset));
    }
  } else if (o.topology.empty()) {
    topology.grid.nodes = std::max(o.nodes, 1);
    topology.grid.ranks_per_node = std::max(o.ranks_per_node, 1);
  } else {
    WEFT_ASSIGN_OR_RETURN(topology, ReadTopology(o.topology));
    const ProcessGrid& grid = topology.grid;
    if (o.nodes != 0 && o.nodes != grid.nodes) {
      return Refuse(
          absl::StrCat("--nodes ", o.nodes, " against ", grid.nodes, " nodes in ", o.topology));
    }
    if (o.ranks_per_node != 0 && o.ranks_per_node != grid.ranks_per_node) {
      return Refuse(absl::StrCat("--ranks-per-node ", o.ranks_per_node, " against ",
                                 grid.ranks_per_node, " in ", o.topology));
    }
  }
  WEFT_RETURN_IF_ERROR(Validate(topology));
  return topology;
}

absl::StatusOr<Coefficients> CoefficientsFromFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const json value, ReadJson(path));
  Coefficients result;
  result.name = std::filesystem::path(path).filename().string();
  const auto bad = [&] {
    return Refuse(absl::StrCat(path,
                               ": coefficients are a list of triples of finite numbers, "
                               "[[a, b, c], ...]"));
  };
  if (!value.is_array() || value.empty()) return bad();
  for (const json& triple : value) {
    if (!triple.is_array() || triple.size() != 3) return bad();
    double numbers[3];
    for (int i = 0; i < 3; ++i) {
      if (!triple.at(i).is_number()) return bad();
      numbers[i] = triple.at(i).get<double>();
      if (!std::isfinite(numbers[i])) return bad();
    }
    result.triples.push_back({numbers[0], numbers[1], numbers[2]});
  }
  return result;
}

absl::Status SetNewtonSchulz(const Options& o, NewtonSchulzOptions& ns) {
  int iterations = 5;
  auto named = Coefficients::Named(o.coefficients);
  std::error_code error;
  if (named.ok()) {
    ns.coefficients = *std::move(named);
  } else if (std::filesystem::exists(o.coefficients, error)) {
    WEFT_ASSIGN_OR_RETURN(ns.coefficients, CoefficientsFromFile(o.coefficients));
    iterations = static_cast<int>(ns.coefficients.triples.size());
  } else {
    return Refuse(absl::StrCat("--coefficients ", Quoted(o.coefficients),
                               " is neither quintic, polar_express, you nor an existing file"));
  }
  ns.iterations = o.iterations != 0 ? o.iterations : iterations;

  if (o.segments == "none") {
    ns.segments = {0};
  } else if (o.segments != "auto") {
    for (const absl::string_view part : absl::StrSplit(o.segments, ',')) {
      int length = 0;
      if (!absl::SimpleAtoi(part, &length) || length < 1) {
        return Refuse(absl::StrCat("--segments ", Quoted(o.segments),
                                   " is neither auto, none nor lengths such as 2,2,1"));
      }
      ns.segments.push_back(length);
    }
  }
  if (const auto type = DTypeNamed(o.dtype)) {
    ns.operand_type = *type;
  } else {
    return Refuse(absl::StrCat("--dtype ", Quoted(o.dtype), " is neither f32, bf16 nor f16"));
  }
  if (o.eps) {
    // In fp32, where the division is; Validate() looks at what is left of it there.
    if (!(*o.eps >= std::numeric_limits<float>::min() &&
          *o.eps <= std::numeric_limits<float>::max())) {
      return Refuse("--eps must be a positive normal number of fp32");
    }
    ns.norm_floor = static_cast<float>(*o.eps);
    ns.clamp_to_floor = true;
  }
  return absl::OkStatus();
}

}  // namespace

void AddPlanOptions(CLI::App& app, Options& o) {
  AddSharedOptions(app, o);
  const Group costs(app, "Costs");
  costs.Option("--profile", o.profile, "Balance owners by this file of `weft profile` [by FLOPs]");
  costs.Flag("--any-profile", o.any_profile,
             "Use it although it is stale or of another machine or topology");
  const Group trainer(app, "Trainer");
  trainer.Flag("--reduced", o.reduced,
               "Gradients come reduced: by DDP, or with --layout sharded or node_sharded by FSDP2");
  trainer.Option("--forward-ms", o.forward_ms,
                 "With --strategy auto: its forward pass, spread over tensors by size [0]");
  trainer.Option("--backward-ms", o.backward_ms, "The same of its backward pass [0]");
  trainer.Integer("--switch-nodes", o.switch_nodes, 1, kMostRanks,
                  "With --strategy auto: owner and node_local on 1 to this many nodes, and where "
                  "they change places");
  const Group output(app, "Output");
  output.Integer("--rank", o.plan_rank, 0, kMostRanks - 1, "Show the lanes of one rank, op by op");
  output.Flag("--all", o.all, "List every matrix, not only the largest");
  output.Flag("--json", o.json, "The whole plan as JSON");
}

void AddRunOptions(CLI::App& app, Options& o) {
  AddSharedOptions(app, o);
  const Group run(app, "Run");
  run.Option("--gradients", o.gradients,
             "Safetensors file with the gradients of every step [seeded random]");
  run.Integer("--steps", o.steps, 1, kMostSteps, "Optimizer steps [3]");
  run.Integer("--seed", o.seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(),
              "Of random gradients and of a manifest's weights [0]");
  AddRankOptions(run, o);

  const Group output(app, "Output");
  output.Option("--out", o.out, "Write MODEL with its new weights to this safetensors file");
  output.Option("--trace", o.trace, "Write a Perfetto trace to this JSON file");
  output.Flag("--verify", o.verify,
              "Compare with a serial float64 update; exit 1 when they differ");
  output.Flag("--verbose", o.verbose, "Show the counters of every matrix");
  output.Flag("--json", o.json, "Print the summary as JSON");
}

void AddProfileOptions(CLI::App& app, Options& o) {
  AddModel(app, o);
  const Group what(app, "What is measured");
  what.Option("--shapes", o.shapes,
              "Shapes such as 768x2304,768x768, beside those of MODEL that take Muon");
  AddAdamWPatterns(what, o);
  what.Option("--batches", o.batches, "Matrices per run [1,2,4,8]");
  what.Option("--sizes", o.sizes,
              "Payloads of collectives in bytes [4096,32768,262144,2097152,8388608]");
  what.Integer("--repetitions", o.repetitions, 1, kMostRepetitions,
               "Of each measurement; the median counts [9]");
  what.Option("--longest", o.longest,
              "Seconds for one measurement: fewer repetitions, then fewer batches [1]");

  AddGridOptions(Group(app, "World"), o);
  AddNewtonSchulzOptions(Group(app, "Newton-Schulz"), o);
  AddRankOptions(Group(app, "Run"), o);
  const Group output(app, "Output");
  output.Option("--out", o.out, "Write the profile to this JSON file");
  output.Flag("--json", o.json, "Print the profile as JSON, not as tables");
}

void AddPresetsOptions(CLI::App& app, Options& o) {
  app.add_option("PRESET", o.preset, "Print this one as a file for --topology")
      ->check(CLI::Validator(NotEmpty, ""));
  const Group world(app, "World");
  world.Integer("--nodes", o.nodes, 1, kMostRanks, "Nodes of the printed file [1]");
}

absl::StatusOr<Settings> SettingsOf(const Options& o) {
  Settings settings;
  WEFT_ASSIGN_OR_RETURN(settings.runtime.topology, TopologyOf(o));
  settings.choose_strategy = o.strategy == "auto";
  if (!settings.choose_strategy) {
    auto strategy = ParseStrategy(o.strategy);
    if (!strategy.ok()) return Under("--strategy", strategy.status());
    settings.runtime.strategy = *strategy;
    settings.layout = *strategy == Strategy::kGather ? Layout::kSharded : Layout::kReplicated;
  }
  if (!settings.choose_strategy && (o.forward_ms != 0 || o.backward_ms != 0)) {
    return Refuse("--forward-ms and --backward-ms are for --strategy auto");
  }
  if (o.reduced) settings.gradient = GradientKind::kReduced;
  if (!settings.choose_strategy && o.switch_nodes > 0) {
    return Refuse("--switch-nodes is for --strategy auto");
  }
  for (const double ms : {o.forward_ms, o.backward_ms}) {
    if (ms >= 0 && std::isfinite(ms)) continue;
    return Refuse("--forward-ms and --backward-ms must be 0 or positive numbers");
  }
  if (!o.layout.empty()) {
    auto layout = ParseLayout(o.layout);
    if (!layout.ok()) return Under("--layout", layout.status());
    settings.layout = *layout;
  }
  settings.runtime.strict = o.strict;
  auto solver = ParseOwnerSolver(o.owner_solver);
  if (!solver.ok()) return Under("--owner-solver", solver.status());
  settings.runtime.owner_solver = *solver;
  auto pass_through = ParsePassThrough(o.pass_through);
  if (!pass_through.ok()) return Under("--pass-through", pass_through.status());
  settings.runtime.pass_through = *pass_through;
  if (!(o.owner_seconds >= 0)) return Refuse("--owner-seconds must be 0 or a positive number");
  settings.runtime.owner_time_limit = absl::Seconds(o.owner_seconds);

  settings.muon = o.muon;
  settings.muon.nesterov = !o.no_nesterov;
  if (o.scale == "match_rms_adamw") {
    settings.muon.scale = Scale::kMatchRmsAdamW;
  } else if (o.scale != "original") {
    return Refuse(
        absl::StrCat("--scale ", Quoted(o.scale), " is neither original nor match_rms_adamw"));
  }
  WEFT_RETURN_IF_ERROR(SetNewtonSchulz(o, settings.muon.newton_schulz));
  WEFT_RETURN_IF_ERROR(Validate(settings.muon));
  settings.adamw = o.adamw;
  WEFT_RETURN_IF_ERROR(Validate(settings.adamw));
  return settings;
}

absl::Status CheckRankOptions(const Options& o, const Topology& topology) {
  if (!(o.deadline > 0) || !std::isfinite(o.deadline)) {
    return Refuse("--deadline must be a positive number of seconds");
  }
  if (o.transport != "local" && o.transport != "gloo") {
    return Refuse(absl::StrCat("--transport ", Quoted(o.transport), " is neither local nor gloo"));
  }
  const int size = topology.grid.size();
  if (o.rank < 0 && size > kMostRanksHere) {
    return Refuse(absl::StrCat(size, " ranks are more than the ", kMostRanksHere,
                               " that run on one machine"));
  }
  const bool one_of_several = o.rank != -1 || o.world != 0 || !o.store.empty();
  if (!one_of_several) return absl::OkStatus();
  if (o.transport != "gloo") return Refuse("--rank, --world and --store need --transport gloo");
  if (o.rank == -1 || o.world == 0 || o.store.empty()) {
    return Refuse("--rank, --world and --store are given together or not at all");
  }
  if (o.world != size) {
    return Refuse(absl::StrCat("--world ", o.world, " against ", topology.grid.nodes, " nodes of ",
                               topology.grid.ranks_per_node, " ranks"));
  }
  if (o.rank >= o.world) {
    return Refuse(absl::StrCat("--rank ", o.rank, " is not one of the ", o.world, " ranks"));
  }
  return absl::OkStatus();
}

}  // namespace weft::tool
