#include "scheduler/phases.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

namespace weft {
namespace scheduler {

void SpreadPhases(std::vector<PlanMatrix>& matrices) {
  std::map<std::int32_t, std::vector<std::size_t>> by_period;
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    if (matrices[m].period > 1) by_period[matrices[m].period].push_back(m);
  }
  for (auto& [period, members] : by_period) {
    std::stable_sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
      return matrices[a].flops > matrices[b].flops;
    });
    std::vector<double> load(period);
    for (const std::size_t m : members) {
      const auto least = std::min_element(load.begin(), load.end());
      matrices[m].phase = static_cast<std::int32_t>(least - load.begin());
      *least += std::max(matrices[m].flops, 1.0);  // those without a cost are spread by number
    }
  }
}

}  // namespace scheduler

std::int64_t CycleOf(const Plan& plan) {
  std::int64_t cycle = 1;
  for (const PlanMatrix& matrix : plan.matrices) {
    cycle = std::min(std::lcm(cycle, std::int64_t{matrix.period}), kMostCycleSteps);
  }
  return cycle;
}

}  // namespace weft
