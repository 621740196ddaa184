// Runs the tasks of a few steps in virtual time.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/step_graph.h"
#include "scheduler/transfers.h"

namespace weft::scheduler {

// When each task ran: by step and task, step * tasks + task.
struct StepTimes {
  std::vector<double> begin;
  std::vector<double> end;  // below 0: never
  // The task, as above, whose end made it possible; -1: none.
  std::vector<std::int32_t> cause;
};

// A task begins as soon as those that it comes behind are over. A transfer is on no link for its
// latency, and then shares them (fair_links.h). A rank's compute lane and its trainer share the
// device: the compute lane goes first, or both get half (`updates_first`).
StepTimes RunSteps(const StepGraph& graph, const Transfers& transfers, bool updates_first,
                   int steps);

}  // namespace weft::scheduler
