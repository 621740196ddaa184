// What it costs one rank to run k matrices of a class, in the cheapest batches.
#pragma once

#include <vector>

#include "scheduler/assignment_problem.h"

namespace weft::scheduler {

class RunCosts {
 public:
  explicit RunCosts(const AssignmentProblem& problem);

  int classes() const { return static_cast<int>(costs_.size()); }
  int size(int cls) const { return static_cast<int>(costs_[cls].size()) - 1; }
  // 0 <= count <= size(cls). The sum over ranks is never less than Of(cls, size(cls)).
  double Of(int cls, int count) const { return costs_[cls][count]; }
  double Of(const Holding& holding) const;
  // Of(cls, k) never falls with k: a rank that gives a matrix away is never worse off.
  bool Monotone(int cls) const { return monotone_[cls]; }
  // Least cost per matrix that any number of them has, and of owning any at all.
  double LeastPerMatrix(int cls) const { return per_matrix_[cls]; }
  double LeastAtAll(int cls) const { return at_all_[cls]; }
  // Sizes of the batches that Of(cls, count) stands for, the larger first.
  std::vector<int> Batches(int cls, int count) const;

  // Load per rank, were all matrices run in the cheapest batches and spread over `ranks`.
  double Mean(int ranks) const;
  // No assignment of all matrices has a smaller makespan: the mean, and the dearest matrix.
  double LowerBound(int ranks) const;

 private:
  std::vector<std::vector<double>> costs_;    // [class][count]
  std::vector<std::vector<int>> last_batch_;  // [class][count]: size of one batch of the cheapest
  std::vector<bool> monotone_;
  std::vector<double> per_matrix_, at_all_;
};

}  // namespace weft::scheduler
