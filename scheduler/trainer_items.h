// The trainer's own work of a step, in its order.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/plan.h"

namespace weft::scheduler {

struct TrainerItem {
  std::int32_t op = -1;      // a use: index into Plan::ops; else -1
  std::int32_t matrix = -1;  // of no use
  int pass = 0;
  bool backward = false;
};

// Each pass forward, then backward. Uses stand as the plan has them. Matrices that are not owned go
// forward in use order, those of a layer with uses behind its use and the others before all uses;
// backward they go the opposite way, with as many uses before them as the plan's order of
// reductions allows.
std::vector<TrainerItem> TrainerItems(const Plan& plan);

}  // namespace weft::scheduler
