#include "c/convert.h"

#include <string>
#include <utility>

#include "base/c_result.h"
#include "base/status_macros.h"
#include "c/config.h"
#include "c/objects.h"
#include "weft/topology_file.h"

namespace weft::c {
namespace {

absl::StatusOr<DType> TypeOf(std::int32_t value, const char* field) {
  return EnumOf(value, DType::kF16, field);
}

absl::StatusOr<MuonOptions> MuonOf(const weftMuonConfig_t* given) {
  WEFT_ASSIGN_OR_RETURN(
      const weftMuonConfig_t config,
      ReadConfig(given, weftMuonConfig_t WEFT_MUON_CONFIG_INITIALIZER, "weftMuonConfig_t"));
  MuonOptions options;
  options.lr = config.lr;
  options.momentum = config.momentum;
  options.weight_decay = config.weight_decay;
  WEFT_ASSIGN_OR_RETURN(options.nesterov, FlagOf(config.nesterov, "weftMuonConfig_t.nesterov"));
  WEFT_ASSIGN_OR_RETURN(options.scale,
                        EnumOf(config.scale, Scale::kMatchRmsAdamW, "weftMuonConfig_t.scale"));
  NewtonSchulzOptions& ns = options.newton_schulz;
  if (config.triples != nullptr || config.triple_count != 0) {
    if (config.triple_count < 1 || config.triple_count > kMostNewtonSchulzIterations) {
      return absl::InvalidArgumentError(absl::StrCat("weftMuonConfig_t.triple_count is ",
                                                     config.triple_count, ", not in 1 to ",
                                                     kMostNewtonSchulzIterations));
    }
    WEFT_ASSIGN_OR_RETURN(
        const std::vector<double> numbers,
        ListOf(config.triples, 3 * config.triple_count, "weftMuonConfig_t.triples"));
    ns.coefficients = Coefficients{};
    for (std::size_t i = 0; i < numbers.size(); i += 3) {
      ns.coefficients.triples.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
    }
  } else {
    WEFT_ASSIGN_OR_RETURN(const std::string name,
                          TextOf(config.coefficients, "weftMuonConfig_t.coefficients"));
    WEFT_ASSIGN_OR_RETURN(ns.coefficients, Coefficients::Named(name));
  }
  ns.iterations = config.iterations;
  WEFT_ASSIGN_OR_RETURN(ns.operand_type,
                        TypeOf(config.operand_type, "weftMuonConfig_t.operand_type"));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int32_t> segments,
                        ListOf(config.segments, config.segment_count, "weftMuonConfig_t.segments"));
  ns.segments.assign(segments.begin(), segments.end());
  ns.norm_floor = static_cast<float>(config.norm_floor);
  WEFT_ASSIGN_OR_RETURN(ns.clamp_to_floor,
                        FlagOf(config.clamp_to_floor, "weftMuonConfig_t.clamp_to_floor"));
  options.periodic = {config.period, config.gamma, config.row_norm_eps};
  return options;
}

absl::StatusOr<AdamWOptions> AdamWOf(const weftAdamWConfig_t* given) {
  WEFT_ASSIGN_OR_RETURN(
      const weftAdamWConfig_t config,
      ReadConfig(given, weftAdamWConfig_t WEFT_ADAMW_CONFIG_INITIALIZER, "weftAdamWConfig_t"));
  return AdamWOptions{config.lr, config.beta1, config.beta2, config.eps, config.weight_decay};
}

weftRuleContext_t ContextOf(const RuleContext& rule, const std::string& matrix) {
  weftRuleContext_t context{};
  context.size = sizeof(context);
  context.matrix = matrix.c_str();
  context.step = rule.step;
  context.rows = rule.rows;
  context.cols = rule.cols;
  context.dtype = static_cast<std::int32_t>(rule.dtype);
  context.gradient = rule.gradient;
  context.gradient_scale = rule.gradient_scale;
  context.state = rule.state;
  context.weight = rule.weight;
  context.lr = rule.lr;
  context.weight_decay = rule.weight_decay;
  static_assert(sizeof(StepControl) == 2 * sizeof(float));
  context.control = &rule.control->skip;
  return context;
}

absl::StatusOr<CustomRule> CustomOf(const weftCustomRuleConfig_t* given) {
  WEFT_ASSIGN_OR_RETURN(
      const weftCustomRuleConfig_t config,
      ReadConfig(given, weftCustomRuleConfig_t WEFT_CUSTOM_RULE_CONFIG_INITIALIZER,
                 "weftCustomRuleConfig_t"));
  WEFT_RETURN_IF_ERROR(
      CheckPointer(reinterpret_cast<const void*>(config.apply), "weftCustomRuleConfig_t.apply"));
  CustomRule rule;
  rule.state_bytes_per_element = config.state_bytes_per_element;
  rule.flops = config.flops;
  rule.enqueue = [apply = config.apply, user = config.context](const RuleContext& run) {
    const std::string matrix(run.matrix);
    const std::string what = absl::StrCat("the rule of matrix '", matrix, "'");
    weftRuleContext_t context = ContextOf(run, matrix);
    if (run.device.kind() != "host") {
      context.stream = run.stream.native();
      return base::StatusOf(apply(user, &context), what);
    }
    run.stream.Enqueue([apply, user, context, matrix, what]() mutable {
      context.matrix = matrix.c_str();
      return base::StatusOf(apply(user, &context), what);
    });
    return absl::OkStatus();
  };
  return rule;
}

}  // namespace

absl::StatusOr<MatrixSpec> SpecOf(const weftMatrixConfig_t* given) {
  WEFT_ASSIGN_OR_RETURN(
      const weftMatrixConfig_t config,
      ReadConfig(given, weftMatrixConfig_t WEFT_MATRIX_CONFIG_INITIALIZER, "weftMatrixConfig_t"));
  MatrixSpec spec;
  WEFT_ASSIGN_OR_RETURN(spec.name, TextOf(config.name, "weftMatrixConfig_t.name"));
  const auto convert = [&]() -> absl::Status {
    spec.rows = config.rows;
    spec.cols = config.cols;
    WEFT_ASSIGN_OR_RETURN(spec.dtype, TypeOf(config.dtype, "dtype"));
    WEFT_ASSIGN_OR_RETURN(spec.layout, EnumOf(config.layout, Layout::kOwned, "layout"));
    WEFT_ASSIGN_OR_RETURN(spec.gradient,
                          EnumOf(config.gradient, GradientKind::kReduced, "gradient"));
    spec.layer = config.layer;
    spec.weight = config.weight;
    const int rules =
        (config.muon != nullptr) + (config.adamw != nullptr) + (config.custom != nullptr);
    if (rules > 1) {
      return absl::InvalidArgumentError("more than one of muon, adamw and custom is given");
    }
    if (config.muon != nullptr) {
      WEFT_ASSIGN_OR_RETURN(spec.rule, MuonOf(config.muon));
    } else if (config.adamw != nullptr) {
      WEFT_ASSIGN_OR_RETURN(spec.rule, AdamWOf(config.adamw));
    } else if (config.custom != nullptr) {
      WEFT_ASSIGN_OR_RETURN(spec.rule, CustomOf(config.custom));
    }
    WEFT_ASSIGN_OR_RETURN(spec.shard_rows,
                          ListOf(config.shard_rows, config.shard_row_count, "shard_rows"));
    spec.padding_rows = config.padding_rows;
    WEFT_ASSIGN_OR_RETURN(spec.row_blocks,
                          ListOf(config.row_blocks, config.row_block_count, "row_blocks"));
    WEFT_ASSIGN_OR_RETURN(spec.column_blocks,
                          ListOf(config.column_blocks, config.column_block_count, "column_blocks"));
    spec.row_groups = config.row_groups;
    return absl::OkStatus();
  };
  if (const absl::Status converted = convert(); !converted.ok()) {
    return absl::Status(converted.code(),
                        absl::StrCat("matrix '", spec.name, "': ", converted.message()));
  }
  return spec;
}

absl::StatusOr<RuntimeOptions> OptionsOf(const weftRuntimeConfig_t* given, int world_size) {
  WEFT_ASSIGN_OR_RETURN(const weftRuntimeConfig_t config,
                        ReadOptional(given, weftRuntimeConfig_t WEFT_RUNTIME_CONFIG_INITIALIZER,
                                     "weftRuntimeConfig_t"));
  RuntimeOptions options;
  WEFT_ASSIGN_OR_RETURN(options.name, TextOf(config.name, "weftRuntimeConfig_t.name"));
  if (config.topology_json != nullptr) {
    WEFT_ASSIGN_OR_RETURN(options.topology, ParseTopology(config.topology_json));
  } else {
    if (config.nodes < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("weftRuntimeConfig_t.nodes is ", config.nodes, ", not >= 1"));
    }
    options.topology.grid.nodes = config.nodes;
    options.topology.grid.ranks_per_node =
        config.ranks_per_node != 0 ? config.ranks_per_node : world_size / config.nodes;
  }
  if (config.strategy == WEFT_STRATEGY_AUTO) {
    options.auto_strategy.emplace();
  } else {
    WEFT_ASSIGN_OR_RETURN(options.strategy,
                          EnumOf(config.strategy, kLastStrategy, "weftRuntimeConfig_t.strategy"));
  }
  WEFT_ASSIGN_OR_RETURN(options.strict, FlagOf(config.strict, "weftRuntimeConfig_t.strict"));
  WEFT_ASSIGN_OR_RETURN(options.owner_solver, EnumOf(config.owner_solver, OwnerSolver::kMilp,
                                                     "weftRuntimeConfig_t.owner_solver"));
  WEFT_ASSIGN_OR_RETURN(options.pass_through, EnumOf(config.pass_through, PassThrough::kAlways,
                                                     "weftRuntimeConfig_t.pass_through"));
  WEFT_ASSIGN_OR_RETURN(
      options.owner_time_limit,
      DurationOf(config.owner_time_limit_seconds, "weftRuntimeConfig_t.owner_time_limit_seconds"));
  WEFT_ASSIGN_OR_RETURN(options.spread_refreshes,
                        FlagOf(config.spread_refreshes, "weftRuntimeConfig_t.spread_refreshes"));
  WEFT_ASSIGN_OR_RETURN(options.missing_gradient,
                        EnumOf(config.missing_gradient, MissingGradient::kSkip,
                               "weftRuntimeConfig_t.missing_gradient"));
  WEFT_ASSIGN_OR_RETURN(options.non_finite, EnumOf(config.non_finite, NonFinite::kSkipMatrix,
                                                   "weftRuntimeConfig_t.non_finite"));
  WEFT_ASSIGN_OR_RETURN(options.trace, FlagOf(config.trace, "weftRuntimeConfig_t.trace"));
  options.max_gradient_norm = config.max_gradient_norm;
  WEFT_ASSIGN_OR_RETURN(options.deadline, DurationOf(config.deadline_seconds,
                                                     "weftRuntimeConfig_t.deadline_seconds"));
  options.ownership.state_bytes_cap = config.state_bytes_cap;
  WEFT_ASSIGN_OR_RETURN(options.ownership.owners,
                        ListOf(config.owners, config.owner_count, "weftRuntimeConfig_t.owners"));
  options.decision_ring = config.decision_ring;
  PlanLimits& limits = options.limits;
  limits.bucket_bytes = config.bucket_bytes;
  limits.exchange_bytes = config.exchange_bytes;
  limits.piece_bytes = config.piece_bytes;
  limits.fetched_bytes = config.fetched_bytes;
  limits.buffer_bytes = config.buffer_bytes;
  limits.collectives_in_flight = config.collectives_in_flight;
  limits.buffers_in_turn = config.buffers_in_turn;
  limits.inter_layers_ahead = config.inter_layers_ahead;
  limits.intra_layers_ahead = config.intra_layers_ahead;
  WEFT_ASSIGN_OR_RETURN(
      limits.keep_through_backward,
      FlagOf(config.keep_through_backward, "weftRuntimeConfig_t.keep_through_backward"));
  limits.passes = config.passes;
  WEFT_ASSIGN_OR_RETURN(limits.reduce_each_pass,
                        FlagOf(config.reduce_each_pass, "weftRuntimeConfig_t.reduce_each_pass"));
  return options;
}

absl::StatusOr<CheckpointOptions> OptionsOf(const weftCheckpointConfig_t* given) {
  WEFT_ASSIGN_OR_RETURN(
      const weftCheckpointConfig_t config,
      ReadOptional(given, weftCheckpointConfig_t WEFT_CHECKPOINT_CONFIG_INITIALIZER,
                   "weftCheckpointConfig_t"));
  CheckpointOptions options;
  WEFT_ASSIGN_OR_RETURN(const CarriedWeights weights, EnumOf(config.weights, CarriedWeights::kOwned,
                                                             "weftCheckpointConfig_t.weights"));
  options.save = {weights, config.block_bytes};
  options.load.weights = weights;
  WEFT_ASSIGN_OR_RETURN(
      options.load.accept_other_options,
      FlagOf(config.accept_other_options, "weftCheckpointConfig_t.accept_other_options"));
  options.exported.weights = weights;
  WEFT_ASSIGN_OR_RETURN(options.exported.every_copy,
                        FlagOf(config.every_copy, "weftCheckpointConfig_t.every_copy"));
  WEFT_ASSIGN_OR_RETURN(const bool without_data,
                        FlagOf(config.without_data, "weftCheckpointConfig_t.without_data"));
  options.exported.with_data = !without_data;
  return options;
}

}  // namespace weft::c
