// What one matrix takes of the buffers of the rank that holds most of it.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/slots.h"
#include "weft/plan.h"

namespace weft::scheduler {

// As PlanMatrix has them.
struct PeakBytes {
  std::int64_t taken = 0;
  std::int64_t alternative = -1;
};

// By matrix.
std::vector<PeakBytes> PeakBytesOf(const Plan& plan);

// Of a path that nobody has planned: collectives are direct, and the owner is where it costs most.
std::int64_t PeakBytesOn(const ProcessGrid& grid, PathKind path, const PlanMatrix& matrix,
                         int reductions);

}  // namespace weft::scheduler
