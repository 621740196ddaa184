// The owner problem solved by trying everything, sharing no code with the scheduler.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/assignment_problem.h"

namespace weft::testing {

// Over all ways to cut `count` matrices into batches.
inline double CheapestBatches(const std::vector<double>& batch_costs, int count) {
  if (count == 0) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (int b = 1; b <= count && b <= static_cast<int>(batch_costs.size()); ++b) {
    best = std::min(best, batch_costs[b - 1] + CheapestBatches(batch_costs, count - b));
  }
  return best;
}

inline std::vector<double> LoadsOf(const scheduler::AssignmentProblem& problem,
                                   const std::vector<int>& owners) {
  std::map<std::pair<int, int>, int> held;
  for (std::size_t m = 0; m < owners.size(); ++m) ++held[{owners[m], problem.class_of[m]}];
  std::vector<double> loads(problem.grid.size(), 0.0);
  for (const auto& [key, count] : held) {
    loads[key.first] += CheapestBatches(problem.classes[key.second].batch_costs, count);
  }
  return loads;
}

inline double MakespanOf(const scheduler::AssignmentProblem& problem,
                         const std::vector<int>& owners) {
  const std::vector<double> loads = LoadsOf(problem, owners);
  return *std::max_element(loads.begin(), loads.end());
}

inline bool KeepsCaps(const scheduler::AssignmentProblem& problem, const std::vector<int>& owners) {
  std::vector<std::int64_t> state(problem.grid.size(), 0);
  std::vector<double> inter(problem.grid.ranks_per_node, 0.0);
  double total = 0;
  for (std::size_t m = 0; m < owners.size(); ++m) {
    const scheduler::MatrixClass& cls = problem.classes[problem.class_of[m]];
    state[owners[m]] += cls.state_bytes;
    inter[owners[m] % problem.grid.ranks_per_node] += static_cast<double>(cls.inter_bytes);
    total += static_cast<double>(cls.inter_bytes);
  }
  for (std::int64_t bytes : state) {
    if (problem.state_bytes_cap > 0 && bytes > problem.state_bytes_cap) return false;
  }
  const double mean = total / problem.grid.ranks_per_node;
  for (double bytes : inter) {
    if (problem.inter_group_factor > 0 && bytes > mean * problem.inter_group_factor * (1 + 1e-12)) {
      return false;
    }
  }
  return true;
}

// The least makespan of all assignments that keep the caps; infinity if none does.
inline double BestMakespanOf(const scheduler::AssignmentProblem& problem) {
  std::vector<int> owners(problem.class_of.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  while (true) {
    if (KeepsCaps(problem, owners)) best = std::min(best, MakespanOf(problem, owners));
    std::size_t digit = 0;
    while (digit < owners.size() && ++owners[digit] == problem.grid.size()) owners[digit++] = 0;
    if (digit == owners.size()) return best;
  }
}

}  // namespace weft::testing
