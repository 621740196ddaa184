// When the ops of a plan run on emulated links if nothing else takes time: what the plan's order
// and dependencies alone allow, to be held against what was measured.
#pragma once

#include <functional>
#include <vector>

#include "weft/plan.h"
#include "weft/topology.h"

namespace weft::bench {

struct TimelineOptions {
  Topology topology;  // its links are what collectives take
  // Seconds of a compute op on each rank that runs it; null means none.
  std::function<double(const Op&)> compute_seconds;
  bool updates_first = false;  // see below
  // The trainer's own: in each step the matrices' layers forward in use order, each when its matrix
  // is delivered, then backward in the opposite order, each giving its gradient. Layout owned (then
  // of all matrices): the plan's uses, in their order.
  double forward_seconds = 0;  // of one matrix's layer; owned: of one use
  double backward_seconds = 0;
  // Layout owned: the trainer's host comes to a use when the one before has ended. Otherwise it is
  // far ahead of its device.
  bool host_waits = false;
  int steps = 1;
};

// By step, on the slowest rank, in seconds since the first step began.
struct Timeline {
  std::vector<double> forward_end;  // layout owned: of the first forward pass
  std::vector<double> backward_end;
  std::vector<double> verdict_end;
  std::vector<double> delivered;
};

// Lanes and the trainer are queues. A rank's compute lane and its trainer share one device: in
// equal parts while both have work, or the trainer has what the lane leaves (`updates_first`).
Timeline TimelineOf(const Plan& plan, const TimelineOptions& options);

}  // namespace weft::bench
