// One step of a plan as tasks that wait for each other: each collective once per part of its group,
// everything else once per rank. Queues (lanes, the trainer) are edges like any other.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/op_seconds.h"
#include "scheduler/transfers.h"
#include "weft/plan.h"
#include "weft/plan_evaluator.h"

namespace weft::scheduler {

struct StepTask {
  std::int32_t op = -1;        // -1: the trainer's own
  std::int32_t matrix = -1;    // the first that it handles; -1: none
  std::int32_t rank = 0;       // who does it; of a collective the first member
  std::int32_t transfer = -1;  // index into Transfers::all(); -1: it runs on the rank's device
  Lane lane = Lane::kCompute;
  double seconds = 0;  // alone
};

// Which tasks may begin when one is over.
class Successors {
 public:
  using Edge = std::pair<std::int32_t, std::int32_t>;  // from, to
  Successors() = default;
  // Those that are there twice count once.
  Successors(std::vector<Edge> edges, std::size_t tasks);

  absl::Span<const std::int32_t> Of(std::int32_t task) const {
    return absl::MakeConstSpan(to_).subspan(begin_[task], begin_[task + 1] - begin_[task]);
  }
  // How many tasks this one comes behind.
  std::int32_t waits(std::int32_t task) const { return waits_[task]; }

 private:
  std::vector<std::uint32_t> begin_;
  std::vector<std::int32_t> to_;
  std::vector<std::int32_t> waits_;
};

struct StepGraph {
  std::vector<StepTask> tasks;
  Successors same_step;
  Successors next_step;
  // By rank: the trainer's last, when it closes the step.
  std::vector<std::int32_t> closes;
  // By rank: its tasks on each lane, in order.
  std::vector<std::array<std::vector<std::int32_t>, kLaneCount>> lanes;
};

// `trainer` is checked. Ops wait for what each rank's own data needs (docs/adr/0021).
StepGraph BuildStepGraph(const Plan& plan, const TrainerModel& trainer, Transfers& transfers,
                         OpSeconds& seconds);

}  // namespace weft::scheduler
