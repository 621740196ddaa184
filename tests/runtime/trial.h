// What is trained: any model with any options on a grid, and what the serial float64 reference
// makes of it.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"
#include "tests/support/costs.h"
#include "tests/support/model.h"
#include "tests/support/world.h"
#include "tools/reference/update.h"
#include "weft/runtime.h"

namespace weft::testing {

struct Trial {
  std::vector<ModelMatrix> matrices;
  std::vector<RuleKind> rules;
  std::vector<int> layers;
  std::vector<int> periods;  // of the matrices with rule Muon
  MuonOptions muon;
  AdamWOptions adamw;
  RuntimeOptions options;
  int steps = 1;
  std::uint64_t seed = 0;

  int world() const { return options.topology.grid.size(); }
  int micro_steps() const { return options.limits.passes; }
  // What the models know as steps: each micro-step has gradients of its own.
  std::int64_t Sample(int step, int micro) const {
    return std::int64_t{step} * micro_steps() + micro;
  }
  static double Rate(int step) { return 0.5 / (step + 1); }
};

inline Trial DrawTrial(const ProcessGrid& grid, DrawLimits limits = {}) {
  limits.most_matrices = 10;
  limits.most_rows = 96;
  limits.dtypes = {DType::kF32};
  PlanRequest request = DrawRequest(limits, grid);
  const auto pass_through =
      *rc::gen::element(PassThrough::kNever, PassThrough::kWhereItPays, PassThrough::kAlways);
  for (PlanMatrix& matrix : request.matrices) {
    matrix.pass_through = false;
    matrix.pass_through = pass_through == PassThrough::kAlways &&
                          request.strategy == Strategy::kOwner && GetsOwner(request, matrix) &&
                          matrix.layout != Layout::kOwned;
  }
  request.ownership = DrawOwnership(request);
  Trial trial;
  for (const PlanMatrix& matrix : request.matrices) {
    std::vector<std::int64_t> shards = matrix.shard_rows;
    if (matrix.layout == Layout::kNodeSharded && shards.empty()) {
      shards = DefaultShardRows(matrix.rows, grid.ranks_per_node);
    }
    trial.matrices.push_back(
        {{matrix.rows, matrix.cols}, matrix.layout, matrix.gradient, std::move(shards)});
    trial.rules.push_back(matrix.rule);
    trial.layers.push_back(matrix.layer);
    trial.periods.push_back(matrix.period);
  }
  trial.muon.momentum = 0.9;
  trial.muon.nesterov = *rc::gen::arbitrary<bool>();
  trial.muon.weight_decay = *rc::gen::element(0.0, 0.1);
  trial.muon.scale = *rc::gen::element(Scale::kOriginal, Scale::kMatchRmsAdamW);
  trial.adamw.eps = 1e-2;  // a gradient that rounds to the other side of zero changes little
  trial.options = OptionsFor(request.topology.grid, request.strategy);
  trial.options.limits = request.limits;
  trial.options.ownership = request.ownership;
  trial.options.owner_solver = *rc::gen::element(OwnerSolver::kHeuristic, OwnerSolver::kMilp);
  trial.options.pass_through = pass_through;
  if (pass_through == PassThrough::kWhereItPays) {
    // Latencies of the order of what NS costs of matrices this small, so that some pass through.
    Topology linked = request.topology;
    linked.intra = linked.inter = {*rc::gen::element(0.1, 1.0, 10.0), 1};
    trial.options.costs = std::make_shared<const CostModel>(
        linked, AnalyticRates{.flops_per_second = 1e12, .launch_seconds = 0});
  } else {
    trial.options.costs = request.forms.pair_from[0] < 0
                              ? CostsWithForms(request.topology, request.forms)
                              : CostsWithPairs(request.topology);
  }
  trial.muon.periodic.gamma = *rc::gen::element(0.15, 1.0);
  trial.options.spread_refreshes = *rc::gen::arbitrary<bool>();
  trial.steps = *Evenly(1, 4);
  trial.seed = *rc::gen::arbitrary<std::uint64_t>();
  return trial;
}

// state <- state / 2 + gradient; weight <- weight - rate * state / (1 + |state|), where the norm is
// of the whole matrix.
template <typename Real>
void CustomStep(Real rate, std::int64_t count, const Real* gradient, Real scale, Real* state,
                Real* weight) {
  double squares = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    state[i] = state[i] / 2 + gradient[i] * scale;
    squares += static_cast<double>(state[i]) * static_cast<double>(state[i]);
  }
  const Real factor = rate / static_cast<Real>(1 + std::sqrt(squares));
  for (std::int64_t i = 0; i < count; ++i) weight[i] -= factor * state[i];
}

inline Rule RuleOf(const Trial& trial, RuleKind kind) {
  switch (kind) {
    case RuleKind::kMuon:
      return trial.muon;
    case RuleKind::kElementwise:
      return trial.adamw;
    case RuleKind::kCustom:
      break;
  }
  CustomRule rule;
  rule.flops = 1000;
  rule.enqueue = [](const RuleContext& context) {
    context.stream.Enqueue([context] {
      if (!context.control->skip) {
        CustomStep(static_cast<float>(context.lr), context.rows * context.cols,
                   static_cast<const float*>(context.gradient),
                   context.gradient_scale * context.control->gradient_factor, context.state,
                   static_cast<float*>(context.weight));
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  };
  return rule;
}

inline std::vector<MatrixSpec> SpecsOf(const Trial& trial, RankModel& model) {
  std::vector<MatrixSpec> specs;
  for (std::size_t m = 0; m < model.size(); ++m) {
    specs.push_back(model.Spec(m, RuleOf(trial, trial.rules[m])));
    specs.back().layer = trial.layers[m];
    if (auto* muon = std::get_if<MuonOptions>(&specs.back().rule)) {
      muon->periodic.period = trial.periods[m];
    }
  }
  return specs;
}

// Whole weights by matrix.
using Weights = std::vector<std::vector<double>>;

// By matrix: the first step in which NS runs on it.
inline std::vector<int> PhasesOf(const Trial& trial) {
  std::vector<int> phases(trial.matrices.size());
  const bool periodic = std::any_of(trial.periods.begin(), trial.periods.end(),
                                    [](int period) { return period > 1; });
  if (!trial.options.spread_refreshes || !periodic) return phases;
  RankModel model(trial.matrices, 0, trial.world(), trial.seed);
  const Plan plan = *PlanFor(SpecsOf(trial, model), trial.options);
  for (std::size_t m = 0; m < phases.size(); ++m) phases[m] = plan.matrices[m].phase;
  return phases;
}

// Before each step and in the end.
inline std::vector<Weights> Expected(const Trial& trial) {
  const std::vector<int> phases = PhasesOf(trial);
  const RankModel model(trial.matrices, 0, trial.world(), trial.seed);
  reference::MuonSettings muon;
  muon.momentum = trial.muon.momentum;
  muon.nesterov = trial.muon.nesterov;
  muon.weight_decay = trial.muon.weight_decay;
  muon.match_rms_adamw = trial.muon.scale == Scale::kMatchRmsAdamW;
  muon.iterations.assign(5, {3.4445, -4.7750, 2.0315});
  muon.gamma = trial.muon.periodic.gamma;
  reference::AdamWSettings adamw;
  adamw.eps = trial.adamw.eps;
  std::vector<Weights> history(trial.steps + 1);
  for (std::size_t m = 0; m < model.size(); ++m) {
    const std::vector<float> first = model.FirstWeight(m);
    std::vector<double> weight(first.begin(), first.end());
    std::vector<double> state(weight.size()), second(weight.size());
    history[0].push_back(weight);
    for (int step = 0; step < trial.steps; ++step) {
      std::vector<double> gradient(weight.size());
      for (int micro = 0; micro < trial.micro_steps(); ++micro) {
        const std::vector<float> mean = model.MeanGradient(m, trial.Sample(step, micro));
        for (std::size_t i = 0; i < mean.size(); ++i) gradient[i] += mean[i];
      }
      muon.lr = adamw.lr = Trial::Rate(step);
      muon.row_norm = (step + trial.periods[m] - phases[m]) % trial.periods[m] != 0;
      switch (trial.rules[m]) {
        case RuleKind::kMuon:
          reference::MuonStep(muon, model.shape(m).rows, model.shape(m).cols, gradient, state,
                              weight);
          break;
        case RuleKind::kElementwise:
          reference::AdamWStep(adamw, step + 1, gradient, state, second, weight);
          break;
        case RuleKind::kCustom:
          CustomStep(muon.lr, model.Size(m), gradient.data(), 1.0, state.data(), weight.data());
      }
      history[step + 1].push_back(weight);
    }
  }
  return history;
}

}  // namespace weft::testing
