// Owners of matrices whose costs fall in different steps of a cycle.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "scheduler/owner_assignment.h"
#include "scheduler/pattern_master.h"
#include "tests/scheduler/brute_force.h"
#include "tests/scheduler/requests.h"
#include "weft/plan.h"

namespace weft::scheduler {
namespace {

using testing::Evenly;

// Few enough to try all owners. Costs are whole numbers, so that sums are exact in any order.
AssignmentProblem DrawCycle(bool one_period) {
  AssignmentProblem problem;
  problem.grid = *rc::gen::element(ProcessGrid{1, 2}, ProcessGrid{3, 1}, ProcessGrid{2, 2});
  const int period = *Evenly(2, 4);
  const int classes = *Evenly(1, 5);
  for (int c = 0; c < classes; ++c) {
    MatrixClass cls{{static_cast<double>(*Evenly(0, 41))}, *Evenly(0, 20), *Evenly(0, 20)};
    cls.period = one_period ? period : *Evenly(1, 4);
    cls.phase = *Evenly(0, cls.period);
    problem.classes.push_back(cls);
  }
  problem.class_of.resize(*Evenly(1, 7));
  for (int& cls : problem.class_of) cls = *Evenly(0, classes);
  return problem;
}

// The loads of those matrices that have costs in the step.
double MakespanIn(const AssignmentProblem& problem, const std::vector<int>& owners, int step) {
  std::vector<double> loads(problem.grid.size());
  for (std::size_t m = 0; m < owners.size(); ++m) {
    const MatrixClass& cls = problem.classes[problem.class_of[m]];
    if (step % cls.period == cls.phase) loads[owners[m]] += cls.batch_costs[0];
  }
  return *std::max_element(loads.begin(), loads.end());
}

constexpr int kCycle = 6;  // of periods 1, 2 and 3

double SlowestStep(const AssignmentProblem& problem, const std::vector<int>& owners) {
  double slowest = 0;
  for (int step = 0; step < kCycle; ++step) {
    slowest = std::max(slowest, MakespanIn(problem, owners, step));
  }
  return slowest;
}

// Over all owners.
template <typename Measure>
double Least(const AssignmentProblem& problem, const Measure& measure) {
  std::vector<int> owners(problem.class_of.size(), 0);
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    least = std::min(least, measure(owners));
    std::size_t digit = 0;
    while (digit < owners.size() && ++owners[digit] == problem.grid.size()) owners[digit++] = 0;
    if (digit == owners.size()) return least;
  }
}

RC_GTEST_PROP(CycleOwners, EachStepOfOnePeriodIsBalancedAsIfAlone, ()) {
  const AssignmentProblem problem = DrawCycle(/*one_period=*/true);
  const auto solved = SolveAssignment(problem, {});
  RC_ASSERT(solved.ok());
  if (!PatternMaster::Available()) return;
  for (int step = 0; step < kCycle; ++step) {
    const double best =
        Least(problem, [&](const auto& owners) { return MakespanIn(problem, owners, step); });
    RC_ASSERT(MakespanIn(problem, solved->owners, step) <= best * 1.0051);
  }
}

RC_GTEST_PROP(CycleOwners, TheReportIsOfTheSlowestStep, ()) {
  const AssignmentProblem problem = DrawCycle(/*one_period=*/false);
  SolverOptions options;
  options.milp = *rc::gen::arbitrary<bool>();
  const auto solved = SolveAssignment(problem, options);
  RC_ASSERT(solved.ok());
  const AssignmentReport& report = solved->report;
  RC_ASSERT(report.makespan == SlowestStep(problem, solved->owners));
  RC_ASSERT(report.makespan <= report.local_search);
  RC_ASSERT(report.local_search <= report.longest_first);
  RC_ASSERT(report.lower_bound <=
            Least(problem, [&](const auto& owners) { return SlowestStep(problem, owners); }));
}

RC_GTEST_PROP(CycleOwners, ACapComesBeforeTheBalanceOfSteps, ()) {
  AssignmentProblem problem = DrawCycle(/*one_period=*/false);
  if (*rc::gen::arbitrary<bool>()) problem.state_bytes_cap = *Evenly(20, 60);
  if (*rc::gen::arbitrary<bool>()) problem.inter_group_factor = 1 + 0.1 * *Evenly(0, 20);
  AssignmentProblem in_one_step = problem;
  for (MatrixClass& cls : in_one_step.classes) cls.period = 1, cls.phase = 0;
  const auto solved = SolveAssignment(problem, {});
  RC_ASSERT(solved.ok() || !SolveAssignment(in_one_step, {}).ok());
  if (solved.ok()) RC_ASSERT(testing::KeepsCaps(problem, solved->owners));
}

// Steps of 4, 4 and 3 + 1 on two ranks: balanced over all steps at once, the last two are 4.
TEST(CycleOwners, TwoMatricesOfAStepGetTwoOwners) {
  std::vector<PlanMatrix> matrices;
  const std::vector<std::pair<double, int>> costs = {{4, 0}, {4, 1}, {3, 2}, {1, 2}};
  for (const auto& [flops, phase] : costs) {
    matrices.push_back(testing::Matrix("m" + std::to_string(matrices.size()), 8, 8));
    matrices.back().flops = flops;
    matrices.back().period = 3;
    matrices.back().phase = phase;
  }
  const auto solved = SolveOwners(testing::Request(Strategy::kOwner, 1, 2, matrices), {});
  ASSERT_EQ(solved.status(), absl::OkStatus());
  EXPECT_NE(solved->owners[2], solved->owners[3]);
  EXPECT_EQ(solved->report.makespan, 4);
  // And each has as much of the cycle as steps that do not meet allow.
  std::vector<double> of_cycle(2);
  for (std::size_t m = 0; m < 4; ++m) of_cycle[solved->owners[m]] += costs[m].first;
  EXPECT_EQ(*std::max_element(of_cycle.begin(), of_cycle.end()), 7);
}

}  // namespace
}  // namespace weft::scheduler
