// Predicts one step of a plan from costs, topology and the trainer's own work. Pure: no clocks, no
// devices; equal questions have equal answers on every rank. The model is described in
// docs/evaluator.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "weft/cost_model.h"
#include "weft/plan.h"

#pragma GCC visibility push(default)
namespace weft {

// What the trainer does beside Weft, on each rank's device. The default does nothing: all ranks
// have all gradients at once, when the step before has been delivered everywhere (layout owned: a
// rank has each when the uses before it are over).
struct TrainerModel {
  // By matrix, of one pass over the part of the model that uses it, seconds; empty: none. Forward
  // goes in use order and waits for each matrix; backward goes the other way, and its part yields
  // the matrix's gradient. There are PlanLimits::passes of both.
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // Layout owned: the trainer's host comes to a use when the one before has ended. Otherwise it is
  // far ahead of its device.
  bool host_waits = false;
  // A rank's compute lane has the device before the trainer, as on devices whose streams have
  // priorities. Otherwise each has half while both have work.
  bool updates_first = true;
  // Periodic matrices: which step EvaluatePlan() tells; all are taken to be like it.
  std::int64_t step = 0;
};

// Of one rank, seconds in one step.
struct RankPrediction {
  // By lane, how long it has an op under way; the trainer's own work is Lane::kCaller's. A
  // collective is under way from when the last of its members has come.
  std::array<double, kLaneCount> busy = {};
  // Of `busy`, the part in which the device has nothing to do; 0 for kCompute and kCaller.
  std::array<double, kLaneCount> exposed = {};
  double device = 0;  // how long the device is busy: kCompute and kCaller together
};

// A stretch of the critical path.
struct CriticalOp {
  std::int32_t op = -1;      // index into Plan::ops; -1: the trainer's own
  std::int32_t matrix = -1;  // the first that it handles; -1: none
  int rank = 0;              // that does it; of a collective one of its members
  Lane lane = Lane::kCompute;
  double begin = 0;  // since the step's beginning; below 0 where it began in the step before
  double seconds = 0;
  double alone = 0;  // what it takes if it shares nothing
};

// Of one step in the middle of many alike. A step begins when the slowest rank has gone through its
// last backward pass (without a trainer: when all gradients are there), and ends there one step
// later.
struct StepPrediction {
  double step_seconds = 0;
  // By which the step is longer than the work of the device that has most.
  double exposed_seconds = 0;
  std::vector<RankPrediction> ranks;
  // By matrix, since the step's beginning: when the last rank has it (layout owned: when its owner
  // has). 0 for one that no op handles.
  std::vector<double> delivered_seconds;
  // What the step's end waited for, last to first: each entry ended when the one before it in time
  // made it possible. Their seconds inside the step add up to it.
  std::vector<CriticalOp> critical;
  // By lane, seconds of them inside the step. What the compute lane and the trainer lose to each
  // other on the device counts with the one that has had it.
  std::array<double, kLaneCount> critical_seconds = {};
  // Of those of collectives, what they lose to others on the links.
  double critical_sharing = 0;
};

// `work` is what the rules of the plan's matrices ask of the compute lane, as OwnedWorkOf() says
// it, an entry per matrix; where there is none PlanMatrix::flops at Newton-Schulz's rate. Passes
// over memory (momentum, apply, element-wise rules, copies) count by their bytes. `model` is asked
// for each collective, and its topology says what they share. InvalidArgument for costs of another
// grid, a plan of one rank alone, lists of another length, and seconds that are negative or not
// finite; FailedPrecondition for a plan whose ops wait for each other, which ValidatePlan()
// refuses.
absl::StatusOr<StepPrediction> EvaluatePlan(const Plan& plan, const CostModel& model,
                                            const TrainerModel& trainer = {},
                                            absl::Span<const std::optional<OwnedWork>> work = {});

// Of the steps of a cycle (CycleOf()), whatever the trainer model's `step`. One step where no
// matrix is periodic.
struct CyclePrediction {
  double step_seconds = 0;     // mean of the steps
  double exposed_seconds = 0;  // the same
  StepPrediction slowest;      // of the step that takes longest, the first of equal ones
};

// Each step as EvaluatePlan() tells it. Of a cycle longer than kMostEvaluatedSteps its first steps.
inline constexpr std::int64_t kMostEvaluatedSteps = 60;
absl::StatusOr<CyclePrediction> EvaluateCycle(const Plan& plan, const CostModel& model,
                                              const TrainerModel& trainer = {},
                                              absl::Span<const std::optional<OwnedWork>> work = {});

// What the critical path is made of, the most first: "inter 61 %, compute 39 %"; lanes below one
// per cent are left out. "nothing" for a step that takes no time.
std::string BoundText(const StepPrediction& prediction);

}  // namespace weft
#pragma GCC visibility pop
