// Who owns how many matrices of each class, with the loads that follow: what the heuristics change
// step by step.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/assignment_problem.h"
#include "scheduler/run_costs.h"

namespace weft::scheduler {

class RankLoads {
 public:
  // Nothing owned. Both arguments outlive this.
  RankLoads(const AssignmentProblem& problem, const RunCosts& costs);

  int ranks() const { return static_cast<int>(holdings_.size()); }
  int Count(int rank, int cls) const;
  const Holding& holding(int rank) const { return holdings_[rank]; }
  double load(int rank) const { return loads_[rank]; }
  // Of `rank` with one matrix more, or less, of a class.
  double LoadWith(int rank, int cls) const;
  double LoadWithout(int rank, int cls) const;
  double Makespan() const;

  // Whether `rank` has room for one matrix more of `cls`, after one of `leaving` (-1: none) has
  // moved from it to `from` (-1: no rank).
  bool Fits(int rank, int cls, int leaving = -1, int from = -1) const;
  bool KeepCaps() const;
  std::int64_t state_bytes(int rank) const { return state_bytes_[rank]; }
  double inter_bytes(int local) const { return inter_bytes_[local]; }

  void Add(int rank, int cls, int count = 1);
  void Remove(int rank, int cls);

 private:
  void Change(int rank, int cls, int by);

  const AssignmentProblem* problem_;
  const RunCosts* costs_;
  double inter_cap_;
  std::vector<Holding> holdings_;
  std::vector<double> loads_;
  std::vector<std::int64_t> state_bytes_;
  std::vector<double> inter_bytes_;  // by local rank
};

RankLoads LoadsOf(const AssignmentProblem& problem, const RunCosts& costs,
                  const std::vector<int>& owners);

}  // namespace weft::scheduler
