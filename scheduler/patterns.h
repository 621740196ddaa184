// A pattern is what one rank may own while its load stays under a target and its state under the
// cap. All ranks are alike, so an assignment is a choice of one pattern per rank.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/assignment_problem.h"
#include "scheduler/run_costs.h"

namespace weft::scheduler {

class PatternSpace {
 public:
  // Both outlive this.
  PatternSpace(const AssignmentProblem& problem, const RunCosts& costs, double target);

  bool Contains(const Holding& holding) const;

  // All that an assignment under the target can need, or nothing if they are more than `most` or
  // take too long to find. Where every class is Monotone(), those with room left are left out, for
  // another covers them; and those whose load is so small that the other ranks could not take the
  // rest.
  std::optional<std::vector<Holding>> Enumerate(int most) const;

  // The pattern with the largest sum of values[class] * count. `exact` is false if the search was
  // cut short: then a better one may exist.
  struct Priced {
    Holding pattern;
    double value = 0;
    bool exact = true;
  };
  Priced Best(const std::vector<double>& values) const;

 private:
  class Enumeration;
  class Pricing;

  // Matrices of `cls` for which there is state left, given how much is used.
  int Most(int cls, std::int64_t state) const;

  const AssignmentProblem& problem_;
  const RunCosts& costs_;
  double target_;
  bool monotone_ = true;
};

}  // namespace weft::scheduler
