// The master problem: how many ranks take which pattern, so that as little as possible is left
// over.
//
//   minimise  sum_s weight_s u_s
//   where     sum_p count(p, s) y_p + u_s >= size_s   for each class s ("=" where asked for)
//             sum_p y_p <= ranks,   y_p a whole number, u_s >= 0
//
// With CBC; a build without it has a master that is never available. This header is what the rest
// of the scheduler knows of either.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "scheduler/assignment_problem.h"

namespace weft::scheduler {

struct MasterInput {
  std::vector<int> sizes;       // per class
  std::vector<double> weights;  // per class, positive
  int ranks = 1;
  bool exactly = false;  // "=" instead of ">="
};

class PatternMaster {
 public:
  virtual ~PatternMaster() = default;

  // Whether the library was built with a solver. Create() must not be called otherwise.
  static bool Available();
  static std::unique_ptr<PatternMaster> Create(const MasterInput& input);

  virtual void AddPattern(const Holding& pattern) = 0;

  // The problem without "whole number", over the patterns so far.
  struct Relaxation {
    bool solved = false;
    double objective = 0;
    std::vector<double> class_values;  // the duals of the classes, <= weight
  };
  virtual Relaxation SolveRelaxation() = 0;

  // Branch and bound, single-threaded, over the patterns so far. `start` says how many ranks take
  // each pattern in a solution to begin from. Ends at the optimum, after `most_nodes` or, as a
  // backstop that makes results depend on the machine, after `seconds`.
  struct Result {
    std::vector<int> uses;  // per pattern
    double objective = 0;
    bool optimal = false;
    bool out_of_time = false;
  };
  virtual Result Solve(const std::vector<int>& start, int most_nodes, double seconds) = 0;
};

}  // namespace weft::scheduler
