// Options, the run or the comparison, the table.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "train_gpt/data.h"
#include "train_gpt/report.h"
#include "train_gpt/trainer.h"
#include "weft/weft.h"

namespace train_gpt {
namespace {

struct Arguments {
  TrainerOptions trainer;
  std::string text = "examples/data/tiny_shakespeare.txt";
  std::string topology;
  int nodes = 0;  // 0: as in the topology file
  int ranks_per_node = 0;
  std::string optimizer = "muon";
  std::string strategy = "owner";
  std::string layout;  // empty: what the strategy is made for
  bool compare = false;
  bool json = false;
};

constexpr char kCompareTopology[] = "examples/topologies/pcie_2x2.json";

void AddOptions(CLI::App& app, Arguments& arguments) {
  TrainerOptions& trainer = arguments.trainer;
  app.add_flag(
      "--compare", arguments.compare,
      "Train with AdamW, then with Muon under each strategy, and check what Weft promises");
  app.add_flag("--json", arguments.json, "Print JSON, with all losses, instead of the table");
  app.add_option("--trace", trainer.trace, "Write a trace for Perfetto (of the owner run) here");
  app.add_option("--topology", arguments.topology,
                 std::string("Links to emulate (with --compare: ") + kCompareTopology + ")");
  app.add_option("--nodes", arguments.nodes, "Nodes, unless the topology says")
      ->check(CLI::PositiveNumber);
  app.add_option("--ranks-per-node", arguments.ranks_per_node, "Ranks on each")
      ->check(CLI::PositiveNumber);
  app.add_option("--optimizer", arguments.optimizer, "For the hidden matrices")
      ->check(CLI::IsMember({"adamw", "muon"}))
      ->capture_default_str();
  app.add_option("--strategy", arguments.strategy, "Who runs Newton-Schulz where")
      ->check(CLI::IsMember({"replicated", "gather", "owner"}))
      ->capture_default_str();
  app.add_option("--period", trainer.muon.periodic.period,
                 "Newton-Schulz in one of so many steps, row norms in the others")
      ->check(CLI::Range(1, weft::kMostPeriod))
      ->capture_default_str();
  app.add_option("--gamma", trainer.muon.periodic.gamma,
                 "What a row norm moves the weights by, of what Newton-Schulz does")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--layout", arguments.layout,
                 "Of the weights (default: sharded for gather, otherwise replicated)")
      ->check(CLI::IsMember({"replicated", "sharded"}));
  app.add_option("--text", arguments.text, "What to learn")->capture_default_str();
  app.add_option("--steps", trainer.steps, "Optimizer steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--warmup", trainer.warmup_steps, "Steps in which the rate rises")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--evaluate-every", trainer.evaluate_every, "Steps between held-out losses")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--evaluate-on", trainer.evaluation_sequences, "Held-out sequences per rank")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch-per-rank", trainer.batch_per_rank, "Sequences")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--context", trainer.model.context, "Characters per sequence")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--width", trainer.model.width, "Of the hidden state")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--blocks", trainer.model.blocks, "Transformer blocks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--heads", trainer.model.heads, "Attention heads; they divide the width")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--muon-lr", trainer.muon.lr, "Muon's peak rate")->capture_default_str();
  app.add_option("--adamw-lr", trainer.adamw.lr, "AdamW's peak rate")->capture_default_str();
  app.add_option("--momentum", trainer.muon.momentum, "Muon's")->capture_default_str();
  app.add_option("--seed", trainer.seed, "Of weights and batches")->capture_default_str();
}

absl::StatusOr<weft::Topology> TopologyOf(const Arguments& arguments) {
  weft::Topology topology;
  std::string file = arguments.topology;
  if (file.empty() && arguments.compare) file = kCompareTopology;
  if (!file.empty()) {
    auto read = weft::ReadTopology(file);
    if (!read.ok()) return read.status();
    topology = *read;
  }
  if (arguments.nodes > 0) topology.grid.nodes = arguments.nodes;
  if (arguments.ranks_per_node > 0) topology.grid.ranks_per_node = arguments.ranks_per_node;
  return topology;
}

absl::StatusOr<Corpus> ReadCorpus(const std::string& path, int context) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError("cannot read the text " + path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Corpus corpus(text, context);
  if (!corpus.error().empty()) return absl::InvalidArgumentError(path + ": " + corpus.error());
  return corpus;
}

struct RunSpec {
  const char* name;
  Optimizer optimizer;
  weft::Strategy strategy;
  weft::Layout layout;
  int period = 1;
};

absl::StatusOr<Run> Train(const TrainerOptions& base, const Corpus& corpus, const RunSpec& spec) {
  TrainerOptions options = base;
  options.optimizer = spec.optimizer;
  options.strategy = spec.strategy;
  options.layout = spec.layout;
  options.muon.periodic.period = spec.period;
  auto ranks = TrainLocally(options, corpus);
  if (!ranks.ok()) return ranks.status();
  Run run;
  run.name = spec.name;
  run.optimizer = spec.optimizer == Optimizer::kMuon ? "muon" : "adamw";
  run.strategy = weft::Name(spec.strategy);
  run.layout = weft::Name(spec.layout);
  run.ranks = *std::move(ranks);
  return run;
}

// A link class that is not emulated costs what copying in memory costs.
std::string LinkText(const weft::Link& link) {
  if (link == weft::Link{}) return "as fast as memory";
  std::string text = absl::StrFormat("%g us", link.latency_us);
  if (link.gigabytes_per_second > 0) {
    absl::StrAppendFormat(&text, ", %g GB/s", link.gigabytes_per_second);
  }
  return text;
}

void PrintSetting(const TrainerOptions& options) {
  std::int64_t weights = 0, hidden = 0;
  for (const Parameter& parameter : GptParameters(options.model)) {
    weights += parameter.rows * parameter.cols;
    hidden += parameter.hidden ? parameter.rows * parameter.cols : 0;
  }
  const weft::Topology& topology = options.topology;
  std::printf(
      "GPT: %d blocks, width %d, %d heads, context %d; %lld weights, %lld of them hidden matrices\n"
      "World: %d nodes x %d ranks; emulated links: intra %s; inter %s\n"
      "Run: %d steps of %d x %d sequences; peak rates Muon %g, AdamW %g; seed %llu\n\n",
      options.model.blocks, options.model.width, options.model.heads, options.model.context,
      static_cast<long long>(weights), static_cast<long long>(hidden), topology.grid.nodes,
      topology.grid.ranks_per_node, LinkText(topology.intra).c_str(),
      LinkText(topology.inter).c_str(), options.steps, topology.grid.size(), options.batch_per_rank,
      options.muon.lr, options.adamw.lr, static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
}

constexpr char kLegend[] =
    "\nheld-out: mean loss on the same held-out windows after the last step. Times: slowest rank, "
    "median step.\noptimizer: from the last rank's Step() to the last delivery. exposed: waits "
    "that no compute of "
    "the rank covered.\nintra, inter: payload of Weft's collectives per step on the busiest "
    "rank.\n";

absl::StatusOr<int> RunOne(const Arguments& arguments, const Corpus& corpus) {
  auto strategy = weft::ParseStrategy(arguments.strategy);
  if (!strategy.ok()) return strategy.status();
  std::string layout_name = arguments.layout;
  if (layout_name.empty()) {
    layout_name = *strategy == weft::Strategy::kGather ? "sharded" : "replicated";
  }
  auto layout = weft::ParseLayout(layout_name);
  if (!layout.ok()) return layout.status();
  const Optimizer optimizer = arguments.optimizer == "muon" ? Optimizer::kMuon : Optimizer::kAdamW;
  const std::string name = arguments.optimizer + " " + arguments.strategy;

  if (!arguments.json) PrintSetting(arguments.trainer);
  auto run =
      Train(arguments.trainer, corpus,
            {name.c_str(), optimizer, *strategy, *layout, arguments.trainer.muon.periodic.period});
  if (!run.ok()) return run.status();
  if (arguments.json) {
    std::fputs(ToJson({&*run}, {}, arguments.trainer.trace).c_str(), stdout);
    return 0;
  }
  for (const Evaluation& evaluation : Summarize(run->ranks).evaluations) {
    std::printf("step %5d  held-out loss %.4f\n", evaluation.step, evaluation.loss);
  }
  std::printf("\n%s%s", Table({&*run}, std::nullopt).c_str(), kLegend);
  if (!arguments.trainer.trace.empty()) {
    std::printf("trace: %s\n", arguments.trainer.trace.c_str());
  }
  return 0;
}

absl::StatusOr<int> Compare(const Arguments& arguments, const Corpus& corpus) {
  TrainerOptions untraced = arguments.trainer;
  untraced.trace.clear();
  if (!arguments.json) PrintSetting(untraced);

  Comparison comparison;
  using weft::Layout;
  using weft::Strategy;
  const std::vector<std::pair<Run*, RunSpec>> runs = {
      {&comparison.adamw, {"AdamW", Optimizer::kAdamW, Strategy::kReplicated, Layout::kReplicated}},
      {&comparison.replicated,
       {"Muon replicated", Optimizer::kMuon, Strategy::kReplicated, Layout::kReplicated}},
      {&comparison.gather,
       {"Muon gather (sharded)", Optimizer::kMuon, Strategy::kGather, Layout::kSharded}},
      {&comparison.owner, {"Muon owner", Optimizer::kMuon, Strategy::kOwner, Layout::kReplicated}},
      {&comparison.periodic,
       {"Muon owner (sharded), K = 3", Optimizer::kMuon, Strategy::kOwner, Layout::kSharded, 3}}};
  std::vector<const Run*> rows;
  for (const auto& [run, spec] : runs) {
    std::fprintf(stderr, "training: %s\n", spec.name);
    const bool traced = run == &comparison.owner;
    auto trained = Train(traced ? arguments.trainer : untraced, corpus, spec);
    if (!trained.ok()) return trained.status();
    *run = *std::move(trained);
    rows.push_back(run);
  }
  const std::vector<Claim> claims = Judge(comparison);
  bool all_hold = true;
  for (const Claim& claim : claims) all_hold = all_hold && claim.holds;

  if (arguments.json) {
    std::fputs(ToJson(rows, claims, arguments.trainer.trace).c_str(), stdout);
  } else {
    const double goal = Summarize(comparison.adamw.ranks).final_loss();
    std::printf("%s%s", Table(rows, goal).c_str(), kLegend);
    std::printf("steps to goal: steps to AdamW's held-out loss of %.4f.\n\n", goal);
    for (const Claim& claim : claims) {
      std::printf("%s  %s\n", claim.holds ? "ok    " : "FAILED", claim.sentence.c_str());
    }
    if (!arguments.trainer.trace.empty()) {
      std::printf("\ntrace of the owner run: %s (open it in https://ui.perfetto.dev)\n",
                  arguments.trainer.trace.c_str());
    }
  }
  for (const Claim& claim : claims) {
    if (!claim.holds) std::fprintf(stderr, "train_gpt: not met: %s\n", claim.sentence.c_str());
  }
  return all_hold ? 0 : 1;
}

absl::StatusOr<int> Main(Arguments& arguments) {
  TrainerOptions& trainer = arguments.trainer;
  if (trainer.model.width % trainer.model.heads != 0) {
    return absl::InvalidArgumentError("--heads must divide --width");
  }
  auto topology = TopologyOf(arguments);
  if (!topology.ok()) return topology.status();
  trainer.topology = *topology;
  auto corpus = ReadCorpus(arguments.text, trainer.model.context);
  if (!corpus.ok()) return corpus.status();
  trainer.model.vocabulary = corpus->vocabulary();
  return arguments.compare ? Compare(arguments, *corpus) : RunOne(arguments, *corpus);
}

}  // namespace
}  // namespace train_gpt

int main(int argc, char** argv) {
  CLI::App app{"Trains a small GPT on several ranks of this process, with Weft as its optimizer"};
  train_gpt::Arguments arguments;
  train_gpt::AddOptions(app, arguments);
  CLI11_PARSE(app, argc, argv);
  absl::StatusOr<int> code = train_gpt::Main(arguments);
  if (!code.ok()) {
    std::fprintf(stderr, "train_gpt: %s\n", std::string(code.status().message()).c_str());
    return 1;
  }
  return *code;
}
