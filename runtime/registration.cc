#include "runtime/registration.h"

#include <limits>
#include <numeric>
#include <set>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/string_view.h"

namespace weft::runtime {
namespace {

using base::View;

// Every bit of it: ranks that differ in the last one compute different weights.
std::string Exact(double value) { return absl::StrFormat("%.17g", value); }

absl::Status Bad(const MatrixSpec& spec, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("matrix '", spec.name, "': ", what));
}

std::string Describe(const NewtonSchulzOptions& options) {
  std::string text = absl::StrCat(
      "iterations ", options.iterations, ", operands ", View(Name(options.operand_type)),
      ", segments [", absl::StrJoin(options.segments, ","), "], floor ", Exact(options.norm_floor),
      options.clamp_to_floor ? " clamped" : "", ", coefficients");
  for (const Triple& triple : options.coefficients.triples) {
    absl::StrAppend(&text, " (", Exact(triple.a), ",", Exact(triple.b), ",", Exact(triple.c), ")");
  }
  return text;
}

std::string Describe(const Rule& rule) {
  if (const auto* muon = std::get_if<MuonOptions>(&rule)) {
    return absl::StrCat("muon lr ", Exact(muon->lr), ", momentum ", Exact(muon->momentum),
                        muon->nesterov ? ", nesterov" : "", ", weight decay ",
                        Exact(muon->weight_decay), ", scale ",
                        muon->scale == Scale::kOriginal ? "original" : "match_rms_adamw", ", ",
                        Describe(muon->newton_schulz));
  }
  if (const auto* adamw = std::get_if<AdamWOptions>(&rule)) {
    return absl::StrCat("adamw lr ", Exact(adamw->lr), ", betas ", Exact(adamw->beta1), " ",
                        Exact(adamw->beta2), ", eps ", Exact(adamw->eps), ", weight decay ",
                        Exact(adamw->weight_decay));
  }
  const auto& custom = std::get<CustomRule>(rule);
  return absl::StrCat("custom, state ", custom.state_bytes_per_element,
                      " bytes per element, flops ", Exact(custom.flops));
}

}  // namespace

absl::Status CheckOptions(const RuntimeOptions& options) {
  const ProcessGrid& grid = options.topology.grid;
  if (grid.nodes < 1 || grid.ranks_per_node < 1) {
    return absl::InvalidArgumentError(absl::StrCat("topology: a grid of ", grid.nodes, " nodes x ",
                                                   grid.ranks_per_node, " ranks is empty"));
  }
  if (options.deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("deadline must be positive");
  }
  if (options.decision_ring < 1) {
    return absl::InvalidArgumentError("decision_ring must be at least 1");
  }
  if (options.name.empty()) return absl::InvalidArgumentError("name must not be empty");
  return absl::OkStatus();
}

absl::Status CheckSpec(const MatrixSpec& spec, int world, int rank) {
  if (spec.name.empty()) return absl::InvalidArgumentError("a matrix needs a name");
  if (spec.rows < 0 || spec.cols < 0) {
    return Bad(spec, absl::StrCat("shape ", spec.rows, " x ", spec.cols, " is negative"));
  }
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 46;
  if (spec.cols > 0 && spec.rows > kMaxBytes / 8 / spec.cols) {
    return Bad(spec, absl::StrCat("shape ", spec.rows, " x ", spec.cols, " is too large"));
  }
  std::int64_t rows_here = spec.rows;
  if (spec.layout == Layout::kSharded) {
    std::vector<std::int64_t> shards = spec.shard_rows;
    if (shards.empty()) shards = DefaultShardRows(spec.rows, world);
    if (static_cast<int>(shards.size()) != world) {
      return Bad(spec,
                 absl::StrCat("shard_rows has ", shards.size(), " entries for ", world, " ranks"));
    }
    for (std::int64_t rows : shards) {
      if (rows < 0) return Bad(spec, "shard_rows has a negative entry");
    }
    const std::int64_t sum = std::accumulate(shards.begin(), shards.end(), std::int64_t{0});
    if (sum != spec.rows) {
      return Bad(spec,
                 absl::StrCat("shard_rows add up to ", sum, ", not to its ", spec.rows, " rows"));
    }
    if (rank >= 0) rows_here = shards[rank];
  } else if (!spec.shard_rows.empty()) {
    return Bad(spec, "shard_rows given for a replicated layout");
  }
  if (rank >= 0 && spec.weight == nullptr && rows_here * spec.cols > 0) {
    return Bad(spec, "its weight is null");
  }
  absl::Status rule;
  if (const auto* muon = std::get_if<MuonOptions>(&spec.rule)) rule = Validate(*muon);
  if (const auto* adamw = std::get_if<AdamWOptions>(&spec.rule)) rule = Validate(*adamw);
  if (const auto* custom = std::get_if<CustomRule>(&spec.rule)) {
    if (!custom->enqueue && rank >= 0)
      rule = absl::InvalidArgumentError("the rule has no function");
    if (custom->state_bytes_per_element < 0 || custom->flops < 0) {
      rule = absl::InvalidArgumentError("the rule's state or flops are negative");
    }
  }
  if (!rule.ok()) return Bad(spec, std::string(rule.message()));
  return absl::OkStatus();
}

void CompleteSpec(MatrixSpec& spec, int world) {
  if (spec.layout == Layout::kSharded && spec.shard_rows.empty()) {
    spec.shard_rows = DefaultShardRows(spec.rows, world);
  }
}

absl::StatusOr<PlanRequest> MakePlanRequest(const std::vector<MatrixSpec>& specs,
                                            const RuntimeOptions& options) {
  PlanRequest request;
  request.topology = options.topology;
  request.strategy = options.strategy;
  request.strict = options.strict;
  for (const MatrixSpec& spec : specs) {
    PlanMatrix matrix;
    matrix.name = spec.name;
    matrix.rows = spec.rows;
    matrix.cols = spec.cols;
    matrix.dtype = spec.dtype;
    matrix.layout = spec.layout;
    matrix.gradient = spec.gradient;
    matrix.shard_rows = spec.shard_rows;
    const double elements = static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
    if (const auto* muon = std::get_if<MuonOptions>(&spec.rule)) {
      matrix.rule = RuleKind::kMuon;
      matrix.state_bytes_per_element = 4;
      WEFT_ASSIGN_OR_RETURN(const NewtonSchulzCost cost,
                            CostOf(muon->newton_schulz, spec.rows, spec.cols));
      matrix.flops = cost.symmetric_flops;
    } else if (std::holds_alternative<AdamWOptions>(spec.rule)) {
      matrix.rule = RuleKind::kElementwise;
      matrix.state_bytes_per_element = 8;
      constexpr double kAdamWFlopsPerElement = 12;
      matrix.flops = kAdamWFlopsPerElement * elements;
    } else {
      const auto& custom = std::get<CustomRule>(spec.rule);
      matrix.rule = RuleKind::kCustom;
      matrix.state_bytes_per_element = custom.state_bytes_per_element;
      matrix.flops = custom.flops;
    }
    request.matrices.push_back(std::move(matrix));
  }
  return request;
}

std::vector<std::string> Manifest(const std::vector<MatrixSpec>& specs,
                                  const RuntimeOptions& options) {
  std::vector<std::string> lines;
  const Topology& topology = options.topology;
  lines.push_back(absl::StrCat(
      "options: grid ", topology.grid.nodes, " x ", topology.grid.ranks_per_node, ", nics ",
      topology.nics_per_node, ", intra ", Exact(topology.intra.latency_us), " us ",
      Exact(topology.intra.gigabytes_per_second), " GB/s, inter ", Exact(topology.inter.latency_us),
      " us ", Exact(topology.inter.gigabytes_per_second), " GB/s, strategy ",
      View(Name(options.strategy)), options.strict ? ", strict" : "", ", missing gradient ",
      options.missing_gradient == MissingGradient::kError ? "error" : "zero",
      options.trace ? ", traced" : ""));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const MatrixSpec& spec = specs[i];
    lines.push_back(absl::StrCat(
        "matrix ", i, " '", spec.name, "' ", spec.rows, " x ", spec.cols, " ",
        View(Name(spec.dtype)), ", ", View(Name(spec.layout)),
        spec.shard_rows.empty() ? "" : absl::StrCat(" [", absl::StrJoin(spec.shard_rows, ","), "]"),
        ", gradient ", View(Name(spec.gradient)), ", layer ", spec.layer, ", ",
        Describe(spec.rule)));
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
  for (std::size_t i = 0; i < longest; ++i) {
    for (std::size_t rank = 1; rank < lines.size(); ++rank) {
      if (line(rank, i) == line(0, i)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("ranks registered different things: rank 0 has ", line(0, i), "; rank ",
                       rank, " has ", line(rank, i)));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::runtime

namespace weft {

absl::StatusOr<Plan> PlanFor(const std::vector<MatrixSpec>& matrices,
                             const RuntimeOptions& options) {
  WEFT_RETURN_IF_ERROR(runtime::CheckOptions(options));
  const int world = options.topology.grid.size();
  std::vector<MatrixSpec> specs = matrices;
  std::set<std::string> names;
  for (MatrixSpec& spec : specs) {
    WEFT_RETURN_IF_ERROR(runtime::CheckSpec(spec, world, -1));
    if (!names.insert(spec.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("matrix '", spec.name, "' is registered twice"));
    }
    runtime::CompleteSpec(spec, world);
  }
  WEFT_ASSIGN_OR_RETURN(const PlanRequest request, runtime::MakePlanRequest(specs, options));
  return BuildPlan(request);
}

}  // namespace weft
