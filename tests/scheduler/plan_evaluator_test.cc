// Laws of predicted steps, for any plan.
#include "weft/plan_evaluator.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/scheduler/priced.h"
#include "tests/scheduler/requests.h"
#include "tests/support/property.h"

namespace weft::testing {
namespace {

// Sums of times that are rounded differently.
constexpr double kRounding = 1e-9;

constexpr int kCases = 1000;

bool Near(double a, double b) { return std::abs(a - b) <= kRounding * std::max(a, b); }

struct Drawn {
  PlanRequest request;
  Plan plan;
};

Plan Build(const PlanRequest& request) {
  absl::StatusOr<Plan> plan = BuildPlan(request);
  RC_ASSERT(plan.status() == absl::OkStatus());
  return *std::move(plan);
}

StepPrediction Evaluate(const Plan& plan, const CostModel& model,
                        const TrainerModel& trainer = {}) {
  absl::StatusOr<StepPrediction> prediction = EvaluatePlan(plan, model, trainer);
  RC_ASSERT(prediction.status() == absl::OkStatus());
  return *std::move(prediction);
}

DrawLimits Small() {
  DrawLimits limits;
  limits.most_nodes = 3;
  limits.most_ranks_per_node = 3;
  limits.most_matrices = 16;
  return limits;
}

Drawn Draw(const DrawLimits& limits, bool shares_nothing = false) {
  Drawn drawn;
  drawn.request = DrawRequest(limits);
  Topology& topology = drawn.request.topology;
  topology = DrawLinks(topology.grid);
  if (shares_nothing) {
    // A NIC for each rank, and nothing else that carries: at most one lane of a rank uses it.
    topology.nics_per_node = 0;
    topology.root_complex_gigabytes_per_second = 0;
    if (topology.grid.nodes > 1) topology.intra.gigabytes_per_second = 0;
  }
  // Nobody waits for the update of a weight without elements.
  for (PlanMatrix& matrix : drawn.request.matrices) {
    if (matrix.layout != Layout::kOwned) continue;
    matrix.rows = std::max<std::int64_t>(matrix.rows, 1);
    matrix.cols = std::max<std::int64_t>(matrix.cols, 1);
  }
  drawn.request.ownership = {};
  drawn.plan = Build(drawn.request);
  return drawn;
}

TrainerModel DrawTrainer(std::size_t matrices) {
  TrainerModel trainer;
  for (auto* seconds : {&trainer.forward_seconds, &trainer.backward_seconds}) {
    if (*Evenly(0, 4) == 0) continue;
    for (std::size_t m = 0; m < matrices; ++m) {
      seconds->push_back(*rc::gen::element(0.0, 1e-6, 1e-4, 2e-3));
    }
  }
  trainer.updates_first = *rc::gen::arbitrary<bool>();
  trainer.host_waits = *rc::gen::arbitrary<bool>();
  return trainer;
}

double TrainerSeconds(const Plan& plan, const TrainerModel& trainer) {
  const auto sum = [](const std::vector<double>& list) {
    return std::accumulate(list.begin(), list.end(), 0.0);
  };
  return plan.limits.passes * (sum(trainer.forward_seconds) + sum(trainer.backward_seconds));
}

bool HasOwned(const Plan& plan) { return !plan.uses.empty(); }

TEST(EvaluatorLaw, WhereNothingIsSharedTheStepIsTheLongestPath) {
  HoldsInCases(kCases, [] {
    DrawLimits limits = Small();
    limits.layouts = {Layout::kReplicated, Layout::kSharded};
    const Drawn drawn = Draw(limits, /*shares_nothing=*/true);
    const CostModel model(drawn.request.topology, PricedRates());
    const StepPrediction prediction = Evaluate(drawn.plan, model);
    RC_ASSERT(Near(prediction.step_seconds, LongestPath(drawn.plan, model)));
    RC_ASSERT(prediction.critical_sharing <= kRounding * prediction.step_seconds);
  });
}

// A step that is one verdict of any size.
TEST(EvaluatorLaw, OneCollectiveAloneTakesWhatTheCostModelSaysToTheLastBit) {
  HoldsInCases(kCases, [] {
    const PlanRequest request = Request(Strategy::kOwner, *Evenly(1, 5), *Evenly(1, 5), {});
    const ProcessGrid& grid = request.topology.grid;
    RC_PRE(grid.size() > 1);
    Plan plan = Build(request);
    RC_ASSERT(plan.ops.size() == 1u);
    plan.ops[0].bytes = *Evenly<std::int64_t>(0, 1 << 20);
    CostProfile profile;
    if (*rc::gen::arbitrary<bool>()) {
      const LinkFit fit = {*rc::gen::element(0.0, 30.0), *rc::gen::element(0.0, 0.3, 7.0), 0, 0};
      profile.collectives = {{OpKind::kAllReduce, GroupClass::kWorld, *Evenly(2, 20), fit, {}}};
    }
    const CostModel model(profile, DrawLinks(grid), PricedRates());
    const CostEstimate alone = model.Collective(OpKind::kVerdict, GroupClass::kWorld, grid.size(),
                                                static_cast<double>(plan.ops[0].bytes));
    RC_ASSERT(Evaluate(plan, model).step_seconds == alone.seconds);
  });
}

// Whatever the trainer and the compute lane do, they keep the one device busy.
TEST(EvaluatorLaw, OneRankIsNeverIdle) {
  HoldsInCases(kCases, [] {
    DrawLimits limits = Small();
    limits.most_nodes = limits.most_ranks_per_node = 1;
    const Drawn drawn = Draw(limits);
    const TrainerModel trainer = DrawTrainer(drawn.plan.matrices.size());
    const CostModel model(drawn.request.topology, PricedRates());
    const StepPrediction prediction = Evaluate(drawn.plan, model, trainer);
    const double work = SerialSeconds(drawn.plan, model) + TrainerSeconds(drawn.plan, trainer);
    RC_ASSERT(Near(prediction.step_seconds, work));
    RC_ASSERT(Near(prediction.ranks[0].device, work));
  });
}

TEST(EvaluatorLaw, AStepIsBetweenItsLongestPathAndEverythingInARow) {
  HoldsInCases(kCases, [] {
    DrawLimits limits = Small();
    limits.layouts = {Layout::kReplicated, Layout::kSharded};
    const Drawn drawn = Draw(limits);
    const CostModel model(drawn.request.topology, PricedRates());
    const double step = Evaluate(drawn.plan, model).step_seconds;
    RC_ASSERT(step >= LongestPath(drawn.plan, model) * (1 - kRounding));
    RC_ASSERT(step <= SerialSeconds(drawn.plan, model) * (1 + kRounding));
  });
}

// Everything that the closing of a step or the need of a weight triggers lies between one closing
// and the next, and so does the trainer's work. Without a trainer all ops do.
TEST(EvaluatorLaw, AStepIsNoShorterThanAnyLaneOrDevice) {
  HoldsInCases(kCases, [] {
    const Drawn drawn = Draw(Small());
    const Plan& plan = drawn.plan;
    const CostModel model(drawn.request.topology, PricedRates());
    const bool trains = *rc::gen::arbitrary<bool>();
    const TrainerModel trainer = trains ? DrawTrainer(plan.matrices.size()) : TrainerModel{};
    const StepPrediction prediction = Evaluate(plan, model, trainer);
    const double trainer_seconds = TrainerSeconds(plan, trainer);
    const bool all = trainer_seconds == 0 && !HasOwned(plan);
    for (std::size_t rank = 0; rank < plan.lanes.size(); ++rank) {
      std::array<double, kLaneCount> seconds = {};
      for (int lane = 0; lane < kLaneCount; ++lane) {
        for (const std::int32_t id : plan.lanes[rank][lane]) {
          const Op& op = plan.ops[id];
          // What has no elements waits for nothing.
          const bool any_time =
              !all && Meets(plan, op) && PayloadBytes(plan, op, static_cast<int>(rank)) == 0;
          if (IsSecondOfPair(plan, id) || any_time) continue;
          if (!all && op.trigger == Trigger::kSubmitted) continue;
          seconds[lane] += Alone(plan, model, id, static_cast<int>(rank));
        }
      }
      const double device = seconds[static_cast<int>(Lane::kCompute)] + trainer_seconds;
      const RankPrediction& read = prediction.ranks[rank];
      for (const Lane lane : {Lane::kIntra, Lane::kInter}) {
        RC_ASSERT(prediction.step_seconds >= seconds[static_cast<int>(lane)] * (1 - kRounding));
        // Sharing stretches ops; what is left of other steps' may come to it where there is a
        // trainer.
        RC_ASSERT(read.busy[static_cast<int>(lane)] >=
                  seconds[static_cast<int>(lane)] * (1 - kRounding));
        RC_ASSERT(read.exposed[static_cast<int>(lane)] <= read.busy[static_cast<int>(lane)]);
      }
      RC_ASSERT(prediction.step_seconds >= device * (1 - kRounding));
      if (all) RC_ASSERT(Near(read.device, device));
      RC_ASSERT(prediction.step_seconds - read.device >=
                prediction.exposed_seconds - kRounding * prediction.step_seconds);
    }
    const auto ranks = static_cast<double>(plan.lanes.size());
    RC_ASSERT(prediction.step_seconds <=
              (SerialSeconds(plan, model) + ranks * trainer_seconds) * (1 + kRounding));
  });
}

// Without a trainer every byte of a step passes between two closings.
TEST(EvaluatorLaw, AStepIsNoShorterThanWhatPassesAnyNic) {
  HoldsInCases(kCases, [] {
    DrawLimits limits = Small();
    limits.layouts = {Layout::kReplicated, Layout::kSharded};
    const Drawn drawn = Draw(limits);
    const Plan& plan = drawn.plan;
    const Topology& topology = drawn.request.topology;
    const CostModel model(topology, PricedRates());
    const double step = Evaluate(plan, model).step_seconds;
    const int nics =
        topology.nics_per_node > 0 ? topology.nics_per_node : topology.grid.ranks_per_node;
    std::map<std::pair<int, int>, double> seconds;  // by node and NIC
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      const Op& op = plan.ops[i];
      const bool pair = op.with_next || IsSecondOfPair(plan, static_cast<std::int32_t>(i));
      if (!Meets(plan, op) || pair || topology.inter.gigabytes_per_second == 0) continue;
      for (const std::vector<int>& part : plan.groups[op.group].parts) {
        if (topology.grid.node_of(part.front()) == topology.grid.node_of(part.back())) continue;
        const auto n = static_cast<double>(part.size());
        const double bytes = RunsTogether(plan, op)
                                 ? PayloadTogether(plan, topology, op)
                                 : static_cast<double>(PayloadBytes(plan, op, part[0]));
        double carried = bytes;  // a member receives or sends this
        if (op.kind == OpKind::kAllReduce || op.kind == OpKind::kVerdict) {
          carried = 2 * bytes * (n - 1) / n;
        } else if (op.form == CollectiveForm::kSplit) {
          carried = 2 * bytes * (n - 1) / n;
        } else if (op.kind != OpKind::kReduce && op.kind != OpKind::kBroadcast) {
          carried = bytes * (n - 1) / n;
        }
        std::map<std::pair<int, int>, double> once;
        for (const int rank : part) {
          once[{topology.grid.node_of(rank), topology.grid.local_of(rank) % nics}] =
              carried / (1e9 * topology.inter.gigabytes_per_second);
        }
        for (const auto& [nic, its] : once) seconds[nic] += its;
      }
    }
    for (const auto& [nic, its] : seconds) RC_ASSERT(step >= its * (1 - kRounding));
  });
}

// The stretches of the critical path fill the step, and each is at least what the op takes alone.
TEST(EvaluatorLaw, TheCriticalPathAccountsForTheWholeStep) {
  HoldsInCases(kCases, [] {
    const Drawn drawn = Draw(Small());
    const CostModel model(drawn.request.topology, PricedRates());
    const StepPrediction prediction =
        Evaluate(drawn.plan, model, DrawTrainer(drawn.plan.matrices.size()));
    const double step = prediction.step_seconds;
    double sum = 0, at = step;
    for (const CriticalOp& op : prediction.critical) {
      sum += op.seconds;
      RC_ASSERT(std::abs(std::max(op.begin, 0.0) + op.seconds - at) <= kRounding * step);
      at = std::max(op.begin, 0.0);
      const double whole = op.seconds + std::max(0.0, -op.begin);
      RC_ASSERT(whole >= op.alone - kRounding * step);
    }
    RC_ASSERT(std::abs(sum - step) <= kRounding * step);
    const double by_lane = std::accumulate(prediction.critical_seconds.begin(),
                                           prediction.critical_seconds.end(), 0.0);
    RC_ASSERT(std::abs(by_lane - step) <= kRounding * step);
    for (const double delivered : prediction.delivered_seconds) {
      // The last forward and backward come after it.
      RC_ASSERT(HasOwned(drawn.plan) || delivered <= step * (1 + kRounding));
    }
  });
}

CostModel Slower(Topology topology, double factor) {
  for (Link* link : {&topology.intra, &topology.inter}) {
    link->latency_us *= factor;
    link->gigabytes_per_second /= factor;
  }
  topology.root_complex_gigabytes_per_second /= factor;
  AnalyticRates rates;
  rates.flops_per_second /= factor;
  rates.bytes_per_second /= factor;
  rates.launch_seconds *= factor;
  return CostModel(topology, rates);
}

TEST(EvaluatorLaw, TwiceTheTimesGiveTwiceTheStepToTheLastBit) {
  HoldsInCases(kCases, [] {
    const Drawn drawn = Draw(Small());
    TrainerModel trainer = DrawTrainer(drawn.plan.matrices.size());
    const StepPrediction once = Evaluate(drawn.plan, Slower(drawn.request.topology, 1), trainer);
    for (auto* seconds : {&trainer.forward_seconds, &trainer.backward_seconds}) {
      for (double& each : *seconds) each *= 2;
    }
    const StepPrediction twice = Evaluate(drawn.plan, Slower(drawn.request.topology, 2), trainer);
    RC_ASSERT(twice.step_seconds == 2 * once.step_seconds);
    RC_ASSERT(twice.critical.size() == once.critical.size());
    for (std::size_t m = 0; m < once.delivered_seconds.size(); ++m) {
      RC_ASSERT(twice.delivered_seconds[m] == 2 * once.delivered_seconds[m]);
    }
  });
}

// One matrix: its collectives follow each other.
TEST(EvaluatorLaw, OneMatrixTakesTheSumOfItsOpsAndMoreBandwidthNeverMakesItLonger) {
  HoldsInCases(kCases, [] {
    DrawLimits limits = Small();
    limits.most_matrices = 1;
    limits.layouts = {Layout::kReplicated};
    PlanRequest request = DrawRequest(limits);
    request.limits.piece_bytes = 0;
    request.limits.passes = 1;
    // Inside the owner's node broadcasting need not wait for other nodes.
    ProcessGrid& grid = request.topology.grid;
    (*rc::gen::arbitrary<bool>() ? grid.nodes : grid.ranks_per_node) = 1;
    // Parts without elements wait for nothing.
    request.matrices[0].rows = *Evenly<std::int64_t>(1, 300);
    request.matrices[0].cols = *Evenly<std::int64_t>(1, 300);
    request.ownership = {};
    request.topology = DrawLinks(request.topology.grid);
    const Plan plan = Build(request);
    const CostModel model(request.topology, PricedRates());
    const StepPrediction prediction = Evaluate(plan, model);
    double sum = 0;
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      double longest = 0;
      for (const std::vector<int>& part : plan.groups[plan.ops[i].group].parts) {
        for (const int rank : part) {
          longest = std::max(longest, Alone(plan, model, static_cast<std::int32_t>(i), rank));
        }
      }
      sum += longest;
    }
    RC_ASSERT(Near(prediction.step_seconds, sum));
    for (const CriticalOp& op : prediction.critical) {
      RC_ASSERT(std::abs(op.seconds - Alone(plan, model, op.op, op.rank)) <=
                kRounding * prediction.step_seconds);
    }
    Topology faster = request.topology;
    for (double* rate : {&faster.intra.gigabytes_per_second, &faster.inter.gigabytes_per_second,
                         &faster.root_complex_gigabytes_per_second}) {
      *rate *= *rc::gen::element(1.0, 1.5, 4.0);
    }
    RC_ASSERT(Evaluate(plan, CostModel(faster, PricedRates())).step_seconds <=
              prediction.step_seconds * (1 + kRounding));
  });
}

// Nodes are alike: who owns what may go round, and nobody notices.
TEST(EvaluatorLaw, EqualNodesMayChangePlaces) {
  HoldsInCases(kCases, [] {
    DrawLimits limits = Small();
    PlanRequest request = DrawRequest(limits);
    request.strategy = Strategy::kOwner;
    // Those of matrices without an owner stay where they are.
    request.check_gradients = false;
    for (PlanMatrix& matrix : request.matrices) matrix.shard_rows.clear();
    request.topology = DrawLinks(request.topology.grid);
    const ProcessGrid& grid = request.topology.grid;
    std::erase_if(request.matrices,
                  [](const PlanMatrix& matrix) { return matrix.layout == Layout::kSharded; });
    RC_PRE(!request.matrices.empty());
    request.ownership = {};
    request.limits.bucket_bytes = 0;
    request.forms.pair_from.fill(-1);
    for (const PlanMatrix& matrix : request.matrices) {
      request.ownership.owners.push_back(GetsOwner(request, matrix) ? *Evenly(0, grid.size()) : -1);
    }
    const CostModel model(request.topology, PricedRates());
    const TrainerModel trainer = DrawTrainer(request.matrices.size());
    const StepPrediction before = Evaluate(Build(request), model, trainer);
    const int by = *Evenly(0, grid.nodes);
    for (std::int32_t& owner : request.ownership.owners) {
      if (owner < 0) continue;
      owner = grid.rank_of((grid.node_of(owner) + by) % grid.nodes, grid.local_of(owner));
    }
    const StepPrediction after = Evaluate(Build(request), model, trainer);
    RC_ASSERT(Near(before.step_seconds, after.step_seconds));
    for (std::size_t m = 0; m < before.delivered_seconds.size(); ++m) {
      RC_ASSERT(Near(before.delivered_seconds[m], after.delivered_seconds[m]));
    }
    const StepPrediction again = Evaluate(Build(request), model, trainer);
    RC_ASSERT(again.step_seconds == after.step_seconds);
    RC_ASSERT(again.delivered_seconds == after.delivered_seconds);
  });
}

TEST(EvaluatorLaw, ACycleHasTheMeanAndTheSlowestOfItsSteps) {
  HoldsInCases(kCases / 4, [] {
    const Drawn drawn = Draw(Small());
    const CostModel model(drawn.request.topology, PricedRates());
    TrainerModel trainer = DrawTrainer(drawn.request.matrices.size());
    const absl::StatusOr<CyclePrediction> cycle = EvaluateCycle(drawn.plan, model, trainer);
    RC_ASSERT(cycle.status() == absl::OkStatus());
    // Periods of 2, 3 and 5: after 30 steps all begin anew.
    double seconds = 0, exposed = 0, slowest = 0;
    for (trainer.step = 0; trainer.step < 30; ++trainer.step) {
      const StepPrediction step = Evaluate(drawn.plan, model, trainer);
      seconds += step.step_seconds;
      exposed += step.exposed_seconds;
      slowest = std::max(slowest, step.step_seconds);
    }
    RC_ASSERT(Near(cycle->step_seconds, seconds / 30));
    RC_ASSERT(Near(cycle->exposed_seconds, exposed / 30));
    RC_ASSERT(cycle->slowest.step_seconds == slowest);
  });
}

}  // namespace
}  // namespace weft::testing
