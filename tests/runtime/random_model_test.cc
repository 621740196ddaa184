// Any model on any grid, with any options and in any order of submission, trains as the serial
// float64 reference does, and counts what its plan says.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"
#include "tests/support/model.h"
#include "tests/support/property.h"
#include "tests/support/world.h"
#include "tools/reference/update.h"

namespace weft {
namespace {

using testing::RankModel;

// Under sanitizers a case takes an order of magnitude longer.
constexpr int kCases = testing::kSanitized ? 30 : 200;

struct Trial {
  std::vector<testing::ModelMatrix> matrices;
  std::vector<RuleKind> rules;
  MuonOptions muon;
  AdamWOptions adamw;
  RuntimeOptions options;
  int steps = 1;
  std::uint64_t seed = 0;

  int world() const { return options.topology.grid.size(); }
  static double Rate(int step) { return 0.5 / (step + 1); }
};

Trial DrawTrial() {
  testing::DrawLimits limits;
  limits.most_matrices = 10;
  limits.most_rows = 96;
  limits.dtypes = {DType::kF32};
  limits.layouts = {Layout::kReplicated, Layout::kSharded};  // the runtime's
  PlanRequest request = testing::DrawRequest(limits, testing::DrawGrid(8));
  const auto pass_through =
      *rc::gen::element(PassThrough::kNever, PassThrough::kWhereItPays, PassThrough::kAlways);
  for (PlanMatrix& matrix : request.matrices) {
    matrix.pass_through = false;
    matrix.pass_through = pass_through == PassThrough::kAlways &&
                          testing::GetsOwner(request, matrix) && matrix.layout != Layout::kOwned;
  }
  request.ownership = testing::DrawOwnership(request);
  Trial trial;
  for (const PlanMatrix& matrix : request.matrices) {
    trial.matrices.push_back(
        {{matrix.rows, matrix.cols}, matrix.layout, matrix.gradient, matrix.shard_rows});
    trial.rules.push_back(matrix.rule);
  }
  trial.muon.momentum = 0.9;
  trial.muon.nesterov = *rc::gen::arbitrary<bool>();
  trial.muon.weight_decay = *rc::gen::element(0.0, 0.1);
  trial.muon.scale = *rc::gen::element(Scale::kOriginal, Scale::kMatchRmsAdamW);
  trial.adamw.eps = 1e-2;  // a gradient that rounds to the other side of zero changes little
  trial.options = testing::OptionsFor(request.topology.grid, request.strategy);
  trial.options.limits = request.limits;
  trial.options.ownership = request.ownership;
  trial.options.owner_solver = *rc::gen::element(OwnerSolver::kHeuristic, OwnerSolver::kMilp);
  trial.options.pass_through = pass_through;
  // Latencies of the order of what NS costs of matrices this small, so that some pass through.
  Topology linked = request.topology;
  linked.intra = linked.inter = {*rc::gen::element(0.1, 1.0, 10.0), 1};
  trial.options.costs = std::make_shared<const CostModel>(
      linked, AnalyticRates{.flops_per_second = 1e12, .launch_seconds = 0});
  trial.steps = *testing::Evenly(1, 4);
  trial.seed = *rc::gen::arbitrary<std::uint64_t>();
  return trial;
}

// state <- state / 2 + gradient; weight <- weight - rate * state / (1 + |state|), where the norm is
// of the whole matrix.
template <typename Real>
void CustomStep(Real rate, std::int64_t count, const float* gradient, Real scale, Real* state,
                Real* weight) {
  double squares = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    state[i] = state[i] / 2 + gradient[i] * scale;
    squares += static_cast<double>(state[i]) * static_cast<double>(state[i]);
  }
  const Real factor = rate / static_cast<Real>(1 + std::sqrt(squares));
  for (std::int64_t i = 0; i < count; ++i) weight[i] -= factor * state[i];
}

Rule RuleOf(const Trial& trial, RuleKind kind) {
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

// Whole weights in the end.
std::vector<std::vector<double>> Expected(const Trial& trial) {
  const RankModel model(trial.matrices, 0, trial.world(), trial.seed);
  reference::MuonSettings muon;
  muon.momentum = trial.muon.momentum;
  muon.nesterov = trial.muon.nesterov;
  muon.weight_decay = trial.muon.weight_decay;
  muon.match_rms_adamw = trial.muon.scale == Scale::kMatchRmsAdamW;
  muon.iterations.assign(5, {3.4445, -4.7750, 2.0315});
  reference::AdamWSettings adamw;
  adamw.eps = trial.adamw.eps;
  std::vector<std::vector<double>> weights;
  for (std::size_t m = 0; m < model.size(); ++m) {
    const std::vector<float> first = model.FirstWeight(m);
    std::vector<double> weight(first.begin(), first.end());
    std::vector<double> state(weight.size()), second(weight.size());
    for (int step = 0; step < trial.steps; ++step) {
      const std::vector<float> mean = model.MeanGradient(m, step);
      const std::vector<double> gradient(mean.begin(), mean.end());
      muon.lr = adamw.lr = Trial::Rate(step);
      switch (trial.rules[m]) {
        case RuleKind::kMuon:
          reference::MuonStep(muon, model.shape(m).rows, model.shape(m).cols, gradient, state,
                              weight);
          break;
        case RuleKind::kElementwise:
          reference::AdamWStep(adamw, step + 1, gradient, state, second, weight);
          break;
        case RuleKind::kCustom:
          CustomStep(muon.lr, model.Size(m), mean.data(), 1.0, state.data(), weight.data());
      }
    }
    weights.push_back(std::move(weight));
  }
  return weights;
}

// What `rank` must have counted for a matrix, by the documented paths and the plan's collectives.
MatrixCounters ExpectedCounters(const Trial& trial, const Plan& plan, std::int32_t m, int rank) {
  const PlanMatrix& matrix = plan.matrices[m];
  const bool runs_rule = matrix.owner < 0 || matrix.owner == rank;
  // The direction of a matrix in shards travels, and each rank applies its rows.
  const bool applies = matrix.rule == RuleKind::kMuon && matrix.layout == Layout::kSharded;
  MatrixCounters counters;
  counters.ns_runs = matrix.rule == RuleKind::kMuon && runs_rule ? trial.steps : 0;
  counters.updates = runs_rule || applies ? trial.steps : 0;
  for (const auto& lane : plan.lanes[rank]) {
    for (std::int32_t index : lane) {
      const Op& op = plan.ops[index];
      const absl::Span<const std::int32_t> travel = MatricesOf(plan, op);
      if (!IsCollective(op.kind) || std::find(travel.begin(), travel.end(), m) == travel.end()) {
        continue;
      }
      counters.collectives += trial.steps;
      // Of a bucket, its own part.
      const std::int64_t bytes =
          travel.size() == 1 ? PayloadBytes(plan, op, rank)
                             : matrix.rows * matrix.cols * static_cast<std::int64_t>(sizeof(float));
      counters.bytes += bytes * trial.steps;
    }
  }
  counters.last_gradient_step = trial.steps - 1;
  return counters;
}

// Empty, or where the counters differ.
std::string Compare(const MatrixCounters& counted, const MatrixCounters& expected) {
  std::ostringstream text;
  const auto compare = [&](const char* name, std::int64_t is, std::int64_t meant) {
    if (is != meant) text << " " << name << " " << is << " instead of " << meant << ";";
  };
  compare("ns_runs", counted.ns_runs, expected.ns_runs);
  compare("updates", counted.updates, expected.updates);
  compare("collectives", counted.collectives, expected.collectives);
  compare("bytes", counted.bytes, expected.bytes);
  compare("last_gradient_step", counted.last_gradient_step, expected.last_gradient_step);
  return text.str();
}

// Trains on one rank, submitting in an order of its own; the first error.
absl::Status Train(const Trial& trial, RankModel& model, Runtime& runtime, int rank) {
  for (std::size_t m = 0; m < model.size(); ++m) {
    const auto added = runtime.AddMatrix(model.Spec(m, RuleOf(trial, trial.rules[m])));
    if (!added.ok()) return added.status();
  }
  if (const absl::Status status = runtime.Commit(); !status.ok()) return status;
  std::mt19937_64 random(trial.seed * 31 + static_cast<std::uint64_t>(rank));
  std::vector<MatrixId> order(model.size());
  std::iota(order.begin(), order.end(), 0);
  for (int step = 0; step < trial.steps; ++step) {
    std::shuffle(order.begin(), order.end(), random);
    for (const MatrixId m : order) {
      const std::vector<float> gradient = model.Gradient(m, step);
      const auto job =
          runtime.Submit({.matrix = m, .gradient = gradient.data(), .lr = Trial::Rate(step)});
      if (!job.ok()) return job.status();
      if (random() % 4 != 0) continue;
      if (const absl::Status status = runtime.Progress(); !status.ok()) return status;
    }
    if (const absl::Status status = runtime.Step(); !status.ok()) return status;
    if (random() % 2 != 0) continue;  // the next step follows at once
    for (std::size_t m = 0; m < model.size(); ++m) {
      const absl::Status status = runtime.WaitForLayer(static_cast<int>(m));
      if (!status.ok()) return status;
    }
  }
  return runtime.WaitForStep();
}

// Empty, or what is wrong on the rank.
std::string Check(const Trial& trial, const std::vector<std::vector<double>>& expected,
                  RankModel& model, const Runtime& runtime, int rank) {
  std::ostringstream wrong;
  const std::vector<MatrixCounters> counters = runtime.Counters();
  for (std::size_t m = 0; m < model.size(); ++m) {
    const std::string where =
        "rank " + std::to_string(rank) + ", matrix '" + RankModel::NameOf(m) + "':";
    const std::vector<float> own =
        model.OwnRows(m, std::vector<float>(expected[m].begin(), expected[m].end()));
    const std::vector<float>& weight = model.weight(m);
    double error = 0;
    for (std::size_t i = 0; i < own.size(); ++i) error += std::pow(weight[i] - own[i], 2);
    // The first weights are standard normal, so this is about their norm.
    const double norm = std::sqrt(static_cast<double>(own.size()));
    if (!(std::sqrt(error) <= 1e-5 * norm)) {
      wrong << where << " weights of norm " << norm << " differ by " << std::sqrt(error) << "\n";
    }
    const std::string differs =
        Compare(counters[m], ExpectedCounters(trial, runtime.plan(), static_cast<int>(m), rank));
    if (!differs.empty()) wrong << where << differs << "\n";
  }
  return wrong.str();
}

TEST(RandomModels, TrainAsTheSerialReferenceAndCountWhatTheirPlansSay) {
  testing::HoldsInCases(kCases, [] {
    const Trial trial = DrawTrial();
    const std::vector<std::vector<double>> expected = Expected(trial);
    std::mutex mutex;
    std::string wrong;
    testing::RunWorld({.grid = trial.options.topology.grid}, [&](testing::Rank rank) {
      RankModel model(trial.matrices, rank.rank, trial.world(), trial.seed);
      auto runtime = *Runtime::Create(trial.options, rank.device, rank.transport);
      const absl::Status status = Train(trial, model, *runtime, rank.rank);
      const std::string found =
          status.ok() ? Check(trial, expected, model, *runtime, rank.rank) : status.ToString();
      const std::lock_guard<std::mutex> lock(mutex);
      wrong += found;
    });
    RC_ASSERT(wrong == "");
  });
}

}  // namespace
}  // namespace weft
