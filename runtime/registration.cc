#include "runtime/registration.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/topology_fields.h"
#include "runtime/owners.h"
#include "runtime/parts.h"
#include "runtime/pass_through.h"
#include "scheduler/limits.h"
#include "scheduler/phases.h"
#include "scheduler/slots.h"
#include "update/recipe.h"
#include "update/row_norms.h"
#include "update/segment_advisor.h"
#include "weft/auto_strategy.h"
#include "weft/work.h"

namespace weft::runtime {
namespace {

using base::View;

// Every bit of it: ranks that differ in the last one compute different weights.
std::string Exact(double value) {
  char text[32];  // the shortest that reads back as `value` has at most 24 characters
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

absl::Status Bad(const MatrixSpec& spec, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("matrix '", spec.name, "': ", what));
}

const char* Text(bool value) { return value ? "true" : "false"; }

template <typename Items, typename Format>
std::string List(const Items& items, Format format) {
  return absl::StrCat("[", absl::StrJoin(items, ",", format), "]");
}
std::string List(const std::vector<int>& items) { return List(items, absl::AlphaNumFormatter()); }

// Fields of a manifest's line, "name=value", in the spelling of the options.
using Fields = std::vector<std::string>;

template <typename Value>
void Add(Fields& fields, absl::string_view name, const Value& value) {
  fields.push_back(absl::StrCat(name, "=", value));
}

std::string_view Name(MissingGradient policy) {
  switch (policy) {
    case MissingGradient::kError:
      return "error";
    case MissingGradient::kZero:
      return "zero";
    case MissingGradient::kSkip:
      return "skip";
  }
  return "?";
}

std::string_view Name(NonFinite policy) {
  switch (policy) {
    case NonFinite::kError:
      return "error";
    case NonFinite::kSkipStep:
      return "skip_step";
    case NonFinite::kSkipMatrix:
      return "skip_matrix";
  }
  return "?";
}

void Describe(const NewtonSchulzOptions& options, Fields& fields) {
  Add(fields, "iterations", options.iterations);
  Add(fields, "operand_type", View(Name(options.operand_type)));
  Add(fields, "segments", List(options.segments));
  Add(fields, "norm_floor", Exact(options.norm_floor));
  Add(fields, "clamp_to_floor", Text(options.clamp_to_floor));
  Add(fields, "coefficients",
      List(options.coefficients.triples, [](std::string* out, const Triple& triple) {
        absl::StrAppend(out, "(", Exact(triple.a), " ", Exact(triple.b), " ", Exact(triple.c), ")");
      }));
}

void Describe(const Rule& rule, Fields& fields) {
  if (const auto* muon = std::get_if<MuonOptions>(&rule)) {
    Add(fields, "rule", "Muon");
    Add(fields, "lr", Exact(muon->lr));
    Add(fields, "momentum", Exact(muon->momentum));
    Add(fields, "nesterov", Text(muon->nesterov));
    Add(fields, "weight_decay", Exact(muon->weight_decay));
    Add(fields, "scale", muon->scale == Scale::kOriginal ? "original" : "match_rms_adamw");
    Add(fields, "periodic.period", muon->periodic.period);
    Add(fields, "periodic.gamma", Exact(muon->periodic.gamma));
    Add(fields, "periodic.eps", Exact(muon->periodic.eps));
    Describe(muon->newton_schulz, fields);
  } else if (const auto* adamw = std::get_if<AdamWOptions>(&rule)) {
    Add(fields, "rule", "AdamW");
    Add(fields, "lr", Exact(adamw->lr));
    Add(fields, "beta1", Exact(adamw->beta1));
    Add(fields, "beta2", Exact(adamw->beta2));
    Add(fields, "eps", Exact(adamw->eps));
    Add(fields, "weight_decay", Exact(adamw->weight_decay));
  } else {
    const auto& custom = std::get<CustomRule>(rule);
    Add(fields, "rule", "custom");
    Add(fields, "state_bytes_per_element", custom.state_bytes_per_element);
    Add(fields, "flops", Exact(custom.flops));
  }
}

constexpr char kFieldEnd = '\t';

// Two lines about one thing that differ: its first field that does, with both values; of lists as
// long as each other, the first item that does.
std::string FirstDifference(const std::string& mine, const std::string& other, int other_rank) {
  const Fields a = absl::StrSplit(mine, kFieldEnd), b = absl::StrSplit(other, kFieldEnd);
  std::size_t f = 0;
  while (f + 1 < std::min(a.size(), b.size()) && a[f] == b[f]) ++f;
  using Pair = std::pair<std::string, std::string>;
  Pair x = absl::StrSplit(a[f], absl::MaxSplits('=', 1));
  Pair y = absl::StrSplit(b[f], absl::MaxSplits('=', 1));
  const Fields these = absl::StrSplit(x.second, ','), those = absl::StrSplit(y.second, ',');
  if (these.size() > 1 && these.size() == those.size()) {
    std::size_t i = 0;
    while (these[i] == those[i]) ++i;
    const auto bare = [](absl::string_view item) {
      return std::string(absl::StripSuffix(absl::StripPrefix(item, "["), "]"));
    };
    absl::StrAppend(&x.first, "[", i, "]");
    x.second = bare(these[i]);
    y.second = bare(those[i]);
  }
  return absl::StrCat(a[0], ": rank 0 has ", x.first, " ", x.second, ", rank ", other_rank, " has ",
                      y.second);
}

}  // namespace

absl::Status CheckOptions(const RuntimeOptions& options) {
  WEFT_RETURN_IF_ERROR(Validate(options.topology));
  WEFT_RETURN_IF_ERROR(scheduler::CheckLimits(options.limits));
  const auto names_something = [](auto value, auto last) {
    return static_cast<int>(value) >= 0 && value <= last;
  };
  if (!names_something(options.strategy, kLastStrategy) ||
      !names_something(options.missing_gradient, MissingGradient::kSkip) ||
      !names_something(options.non_finite, NonFinite::kSkipMatrix) ||
      !names_something(options.owner_solver, OwnerSolver::kMilp) ||
      !names_something(options.pass_through, PassThrough::kAlways)) {
    return absl::InvalidArgumentError(
        "strategy, missing_gradient, non_finite, owner_solver or pass_through has a value that "
        "names nothing");
  }
  if (options.owner_time_limit < absl::ZeroDuration()) {
    return absl::InvalidArgumentError("owner_time_limit must not be negative");
  }
  if (options.ownership.state_bytes_cap < 0) {
    return absl::InvalidArgumentError("ownership.state_bytes_cap must not be negative");
  }
  if (options.costs != nullptr && options.costs->topology().grid != options.topology.grid) {
    const ProcessGrid& grid = options.costs->topology().grid;
    return absl::InvalidArgumentError(absl::StrCat(
        "costs are for a grid of ", grid.nodes, " x ", grid.ranks_per_node, ", the topology is ",
        options.topology.grid.nodes, " x ", options.topology.grid.ranks_per_node));
  }
  const double factor = options.ownership.inter_group_factor;
  if (!std::isfinite(factor) || (factor != 0 && factor < 1)) {
    return absl::InvalidArgumentError(
        "ownership.inter_group_factor must be 0 (none), or 1 or more");
  }
  if (options.deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("deadline must be positive");
  }
  if (options.decision_ring < 1) {
    return absl::InvalidArgumentError("decision_ring must be at least 1");
  }
  if (!(options.max_gradient_norm >= 0) || !std::isfinite(options.max_gradient_norm)) {
    return absl::InvalidArgumentError("max_gradient_norm must be finite and not negative");
  }
  if (options.name.empty()) return absl::InvalidArgumentError("name must not be empty");
  return absl::OkStatus();
}

namespace {

// Plans, traces and checkpoints have names as JSON.
bool IsUtf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace

absl::Status CheckSpec(const MatrixSpec& spec, const ProcessGrid& grid, int rank) {
  if (spec.name.empty()) return absl::InvalidArgumentError("a matrix needs a name");
  if (!IsUtf8(spec.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name of a matrix is not UTF-8: '", absl::CHexEscape(spec.name), "'"));
  }
  if (spec.rows < 0 || spec.cols < 0) {
    return Bad(spec, absl::StrCat("shape ", spec.rows, " x ", spec.cols, " is negative"));
  }
  if (!IsDType(spec.dtype) || spec.layout > kLastLayout || spec.gradient > kLastGradientKind) {
    return Bad(spec, "its dtype, layout or gradient has a value that names nothing");
  }
  if (spec.gradient == GradientKind::kReplica && spec.layout != Layout::kNodeSharded) {
    return Bad(spec, "gradients of kind replica are for the layout node_sharded");
  }
  if (scheduler::TooLarge(spec.rows, spec.cols)) {
    return Bad(spec, absl::StrCat("shape ", spec.rows, " x ", spec.cols, " is too large"));
  }
  if (const absl::Status parts = CheckParts(spec); !parts.ok()) {
    return Bad(spec, std::string(parts.message()));
  }
  std::int64_t rows_here = spec.rows;
  if (scheduler::IsSharded(spec.layout)) {
    const int count = scheduler::ShardCount(grid, spec.layout);
    std::vector<std::int64_t> shards = spec.shard_rows;
    if (shards.empty()) shards = DefaultShardRows(spec.rows, count);
    if (static_cast<int>(shards.size()) != count) {
      return Bad(spec, absl::StrCat("shard_rows has ", shards.size(), " entries for ", count,
                                    count < grid.size() ? " ranks per node" : " ranks"));
    }
    std::int64_t sum = 0;
    for (std::int64_t rows : shards) {
      if (rows < 0) return Bad(spec, "shard_rows has a negative entry");
      if (rows > spec.rows) {
        return Bad(spec, absl::StrCat("shard_rows has ", rows, " rows of its ", spec.rows));
      }
      // Each at most 2^40, for at most kMostRanks ranks.
      sum += rows;
    }
    if (sum != spec.rows) {
      return Bad(spec,
                 absl::StrCat("shard_rows add up to ", sum, ", not to its ", spec.rows, " rows"));
    }
    if (rank >= 0) rows_here = shards[rank % count];
  } else if (!spec.shard_rows.empty()) {
    return Bad(spec, "shard_rows given for a layout without shards");
  }
  // Of an owned one the owner's is asked for when the owner is known.
  const bool needs_weight = rank >= 0 && spec.layout != Layout::kOwned;
  if (needs_weight && spec.weight == nullptr && rows_here * spec.cols > 0) {
    return Bad(spec, "its weight is null");
  }
  absl::Status rule;
  if (const auto* muon = std::get_if<MuonOptions>(&spec.rule)) rule = Validate(*muon);
  if (const auto* adamw = std::get_if<AdamWOptions>(&spec.rule)) rule = Validate(*adamw);
  if (const auto* custom = std::get_if<CustomRule>(&spec.rule)) {
    if (!custom->enqueue && rank >= 0)
      rule = absl::InvalidArgumentError("the rule has no function");
    if (custom->state_bytes_per_element < 0 ||
        custom->state_bytes_per_element > scheduler::kMostStateBytesPerElement) {
      rule = absl::InvalidArgumentError(
          absl::StrCat("the rule's state has ", custom->state_bytes_per_element,
                       " bytes per element, not 0 to ", scheduler::kMostStateBytesPerElement));
    }
    if (!std::isfinite(custom->flops) || custom->flops < 0) {
      rule = absl::InvalidArgumentError("the rule's flops are negative or not finite");
    }
  }
  if (!rule.ok()) return Bad(spec, std::string(rule.message()));
  return absl::OkStatus();
}

absl::Status ClaimWeight(const MatrixSpec& spec, int rank, ClaimedWeights& claimed) {
  if (spec.layout == Layout::kOwned) return absl::OkStatus();  // read once
  const auto bytes =
      static_cast<std::uintptr_t>(HeldRows(spec, rank) * spec.cols) * SizeOf(spec.dtype);
  if (bytes == 0) return absl::OkStatus();
  const auto begin = reinterpret_cast<std::uintptr_t>(spec.weight);
  auto other = claimed.lower_bound(begin + bytes);
  if (other != claimed.begin() && (--other)->second.end > begin) {
    return Bad(spec, absl::StrCat("its weight shares memory with that of matrix '",
                                  other->second.name, "'"));
  }
  claimed[begin] = {begin + bytes, spec.name};
  return absl::OkStatus();
}

void CompleteSpec(MatrixSpec& spec, const ProcessGrid& grid) {
  if (scheduler::IsSharded(spec.layout) && spec.shard_rows.empty()) {
    spec.shard_rows = DefaultShardRows(spec.rows, scheduler::ShardCount(grid, spec.layout));
  }
}

std::int64_t HeldRows(const MatrixSpec& spec, int rank) {
  if (!scheduler::IsSharded(spec.layout)) return spec.rows;
  return spec.shard_rows[static_cast<std::size_t>(rank) % spec.shard_rows.size()];
}

namespace {

// Nothing where the trainer tells no layers apart.
std::vector<std::int32_t> LayersOf(const std::vector<MatrixSpec>& specs) {
  std::vector<std::int32_t> layers;
  bool several = false;
  for (const MatrixSpec& spec : specs) {
    layers.push_back(spec.layer);
    several = several || spec.layer != specs.front().layer;
  }
  return several ? layers : std::vector<std::int32_t>{};
}

// The costs of batches of a matrix, as text; empty for one that has none.
std::string CostText(const OwnershipOptions& ownership, std::size_t matrix) {
  if (matrix >= ownership.matrix_table.size()) return "";
  const std::int32_t table = ownership.matrix_table[matrix];
  if (table < 0 || table >= static_cast<std::int32_t>(ownership.batch_costs.size())) return "";
  return absl::StrCat("table ", table, " ",
                      List(ownership.batch_costs[table], [](std::string* out, double cost) {
                        absl::StrAppend(out, Exact(cost));
                      }));
}

}  // namespace

CostModel ModelOf(const RuntimeOptions& options) {
  return options.costs != nullptr ? *options.costs : CostModel(options.topology);
}

absl::StatusOr<PlanRequest> MakePlanRequest(const std::vector<MatrixSpec>& specs,
                                            const RuntimeOptions& options) {
  PlanRequest request;
  request.topology = options.topology;
  request.strategy = options.strategy;
  request.strict = options.strict;
  request.check_gradients = true;
  request.limits = options.limits;
  request.ownership = options.ownership;
  const CostModel model = ModelOf(options);
  request.forms = ChooseForms(model);
  WEFT_ASSIGN_OR_RETURN(const auto work, OwnedWorkOf(specs));
  if (request.ownership.batch_costs.empty()) {
    BatchTables tables = MakeBatchTables(model, work);
    request.ownership.batch_costs = std::move(tables.batch_costs);
    request.ownership.matrix_table = std::move(tables.matrix_table);
  }
  if (request.ownership.layers.empty()) request.ownership.layers = LayersOf(specs);
  const std::vector<bool> passes = PassThroughOf(specs, options, model, request.forms, work);
  std::vector<const NewtonSchulzOptions*> runs;  // different ones so far
  update::SegmentAdvisor advisor;  // models have many matrices and few kinds of options
  for (const MatrixSpec& spec : specs) {
    PlanMatrix matrix;
    matrix.name = spec.name;
    matrix.rows = spec.rows;
    matrix.cols = spec.cols;
    matrix.dtype = spec.dtype;
    matrix.layout = spec.layout;
    matrix.layer = spec.layer;
    matrix.gradient = spec.gradient;
    matrix.shard_rows = spec.shard_rows;
    matrix.pass_through = passes[request.matrices.size()];
    if (const auto* muon = std::get_if<MuonOptions>(&spec.rule)) {
      matrix.rule = RuleKind::kMuon;
      matrix.state_bytes_per_element = 4;
      matrix.period = muon->periodic.period;
      if (matrix.period > 1 && scheduler::IsSharded(spec.layout)) {
        matrix.norm_vectors = update::CountNormVectors(PartsOf(spec));
      }
      const NewtonSchulzOptions& ns = muon->newton_schulz;
      for (const update::Part& part : PartsOf(spec)) {
        WEFT_ASSIGN_OR_RETURN(const update::Recipe recipe,
                              update::MakeRecipe(ns, part.height(), part.cols, advisor));
        matrix.flops += recipe.Cost().symmetric_flops;
      }
      const auto run =
          std::find_if(runs.begin(), runs.end(), [&](const auto* known) { return *known == ns; });
      matrix.ns_run = static_cast<std::int32_t>(run - runs.begin());
      // Parts and padding keep a matrix out of every batch of several matrices.
      if (!IsOnePart(spec)) {
        matrix.ns_run = -1 - static_cast<std::int32_t>(request.matrices.size());
      }
      if (run == runs.end()) runs.push_back(&ns);
      const std::string& warning = advisor.Warning(ns);
      if (!warning.empty()) matrix.warnings.push_back(warning);
    } else if (std::holds_alternative<AdamWOptions>(spec.rule)) {
      matrix.rule = RuleKind::kElementwise;
      matrix.state_bytes_per_element = 8;
      constexpr double kAdamWFlopsPerElement = 12;
      matrix.flops = kAdamWFlopsPerElement * static_cast<double>(LogicalRows(spec, 0, spec.rows)) *
                     static_cast<double>(spec.cols);
    } else {
      const auto& custom = std::get<CustomRule>(spec.rule);
      matrix.rule = RuleKind::kCustom;
      matrix.state_bytes_per_element = custom.state_bytes_per_element;
      matrix.flops = custom.flops;
    }
    request.matrices.push_back(std::move(matrix));
  }
  if (options.spread_refreshes) scheduler::SpreadPhases(request.matrices);
  return request;
}

absl::StatusOr<std::vector<MatrixSpec>> CheckRegistration(const std::vector<MatrixSpec>& matrices,
                                                          const RuntimeOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  const ProcessGrid& grid = options.topology.grid;
  std::vector<MatrixSpec> specs = matrices;
  std::set<std::string> names;
  for (MatrixSpec& spec : specs) {
    WEFT_RETURN_IF_ERROR(CheckSpec(spec, grid, -1));
    if (!names.insert(spec.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("matrix '", spec.name, "' is registered twice"));
    }
    CompleteSpec(spec, grid);
  }
  return specs;
}

std::vector<std::string> Manifest(const std::vector<MatrixSpec>& specs,
                                  const RuntimeOptions& options, const PlanRequest* request) {
  const std::string separator(1, kFieldEnd);
  Fields fields = {"options"};
  base::VisitFields(options.topology, [&](std::string_view name, const auto& value) {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, double>) {
      Add(fields, View(name), Exact(value));
    } else if constexpr (std::is_same_v<Value, std::string_view>) {
      Add(fields, View(name), View(value));
    } else {
      Add(fields, View(name), value);
    }
  });
  Add(fields, "strategy", options.auto_strategy ? "auto" : View(Name(options.strategy)));
  Add(fields, "strict", Text(options.strict));
  scheduler::VisitFields(options.limits, [&](std::string_view name, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>) {
      Add(fields, View(name), Text(value));
    } else {
      Add(fields, View(name), value);
    }
  });
  Add(fields, "owner_solver", View(Name(options.owner_solver)));
  Add(fields, "spread_refreshes", Text(options.spread_refreshes));
  Add(fields, "pass_through", View(Name(options.pass_through)));
  Add(fields, "ownership.state_bytes_cap", options.ownership.state_bytes_cap);
  Add(fields, "ownership.inter_group_factor", Exact(options.ownership.inter_group_factor));
  Add(fields, "ownership.owners", List(options.ownership.owners, absl::AlphaNumFormatter()));
  Add(fields, "ownership.layers", List(options.ownership.layers, absl::AlphaNumFormatter()));
  Add(fields, "missing_gradient", View(Name(options.missing_gradient)));
  Add(fields, "non_finite", View(Name(options.non_finite)));
  Add(fields, "max_gradient_norm", Exact(options.max_gradient_norm));
  Add(fields, "trace", Text(options.trace));
  const FormChoices forms = request != nullptr ? request->forms : ChooseForms(ModelOf(options));
  Add(fields, "reductions split from", List(forms.reduce_split_from, absl::AlphaNumFormatter()));
  Add(fields, "broadcasts split from", List(forms.broadcast_split_from, absl::AlphaNumFormatter()));
  Add(fields, "pairs from", List(forms.pair_from, absl::AlphaNumFormatter()));
  std::vector<std::string> lines = {absl::StrJoin(fields, separator)};
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const MatrixSpec& spec = specs[i];
    fields = {absl::StrCat("matrix '", spec.name, "'")};
    Add(fields, "rows", spec.rows);
    Add(fields, "cols", spec.cols);
    Add(fields, "dtype", View(Name(spec.dtype)));
    Add(fields, "layout", View(Name(spec.layout)));
    Add(fields, "shard_rows", List(spec.shard_rows, absl::AlphaNumFormatter()));
    Add(fields, "padding_rows", spec.padding_rows);
    Add(fields, "row_blocks", List(spec.row_blocks, absl::AlphaNumFormatter()));
    Add(fields, "column_blocks", List(spec.column_blocks, absl::AlphaNumFormatter()));
    Add(fields, "gradient", View(Name(spec.gradient)));
    Add(fields, "layer", spec.layer);
    Describe(spec.rule, fields);
    Add(fields, "batch costs", request != nullptr ? CostText(request->ownership, i) : "");
    Add(fields, "passed through", Text(request != nullptr && request->matrices[i].pass_through));
    lines.push_back(absl::StrJoin(fields, separator));
  }
  return lines;
}

absl::Status CompareManifests(const std::vector<std::string>& manifests) {
  std::vector<std::vector<std::string>> lines;
  std::size_t longest = 0;
  for (const std::string& manifest : manifests) {
    lines.push_back(absl::StrSplit(manifest, '\n', absl::SkipEmpty()));
    longest = std::max(longest, lines.back().size());
  }
  const auto line = [&](std::size_t rank, std::size_t i) {
    return i < lines[rank].size() ? lines[rank][i] : std::string("nothing");
  };
  const auto subject = [](const std::string& text) { return text.substr(0, text.find(kFieldEnd)); };
  for (std::size_t i = 0; i < longest; ++i) {
    for (std::size_t rank = 1; rank < lines.size(); ++rank) {
      const std::string mine = line(0, i), other = line(rank, i);
      if (other == mine) continue;
      // The options of all ranks are in line 0.
      const std::string difference =
          subject(mine) == subject(other)
              ? FirstDifference(mine, other, static_cast<int>(rank))
              : absl::StrCat("at place ", i - 1, " rank 0 has ", subject(mine), ", rank ", rank,
                             " has ", subject(other));
      return absl::InvalidArgumentError(
          absl::StrCat("ranks registered different things: ", difference));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> RuleOptions(const MatrixSpec& spec) {
  Fields fields;
  Describe(spec.rule, fields);
  std::erase_if(fields, [](const std::string& field) {
    const std::string name = field.substr(0, field.find('='));
    return name == "rule" || name == "lr" || name == "weight_decay" || name == "flops";
  });
  if (!spec.row_blocks.empty()) {
    Add(fields, "row_blocks", List(spec.row_blocks, absl::AlphaNumFormatter()));
  }
  if (!spec.column_blocks.empty()) {
    Add(fields, "column_blocks", List(spec.column_blocks, absl::AlphaNumFormatter()));
  }
  return fields;
}

double DefaultLr(const Rule& rule) {
  if (const auto* muon = std::get_if<MuonOptions>(&rule)) return muon->lr;
  if (const auto* adamw = std::get_if<AdamWOptions>(&rule)) return adamw->lr;
  return 0;
}

double DefaultWeightDecay(const Rule& rule) {
  if (const auto* muon = std::get_if<MuonOptions>(&rule)) return muon->weight_decay;
  if (const auto* adamw = std::get_if<AdamWOptions>(&rule)) return adamw->weight_decay;
  return 0;
}

}  // namespace weft::runtime

namespace weft {

absl::StatusOr<Plan> PlanFor(const std::vector<MatrixSpec>& matrices,
                             const RuntimeOptions& options) {
  if (options.auto_strategy) {
    WEFT_ASSIGN_OR_RETURN(StrategyChoice choice, ChoiceFor(matrices, options));
    return std::move(choice.plan);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<MatrixSpec> specs,
                        runtime::CheckRegistration(matrices, options));
  WEFT_ASSIGN_OR_RETURN(PlanRequest request, runtime::MakePlanRequest(specs, options));
  return runtime::BuildWithOwners(std::move(request), options, Clock::Steady(), 0, nullptr);
}

}  // namespace weft
