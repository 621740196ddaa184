#include "scheduler/owner_assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "scheduler/pattern_master.h"
#include "tests/scheduler/brute_force.h"
#include "tests/scheduler/requests.h"

namespace weft::scheduler {
namespace {

using testing::BestMakespanOf;
using testing::Evenly;
using testing::KeepsCaps;
using testing::MakespanOf;

// Costs are whole numbers, so that sums are exact in any order.
struct Draw {
  int most_matrices = 6;
  int most_classes = 3;
  int most_batch = 4;
  int most_cost = 40;
};

// `tables`: of costs of batches, any numbers at all; otherwise a cost per matrix.
AssignmentProblem DrawProblem(const ProcessGrid& grid, const Draw& draw, bool tables) {
  AssignmentProblem problem;
  problem.grid = grid;
  const int classes = *Evenly(1, draw.most_classes + 1);
  for (int c = 0; c < classes; ++c) {
    MatrixClass cls;
    cls.batch_costs.resize(tables ? *Evenly(1, draw.most_batch + 1) : 1);
    for (double& cost : cls.batch_costs) cost = *Evenly(0, draw.most_cost + 1);
    cls.state_bytes = *Evenly(0, 20);
    cls.inter_bytes = *Evenly(0, 20);
    problem.classes.push_back(cls);
  }
  problem.class_of.resize(*Evenly(1, draw.most_matrices + 1));
  for (int& cls : problem.class_of) cls = *Evenly(0, classes);
  return problem;
}

ProcessGrid DrawSmallGrid() {
  return *rc::gen::element(ProcessGrid{1, 1}, ProcessGrid{1, 2}, ProcessGrid{3, 1},
                           ProcessGrid{2, 2});
}

// Serial, by the book.
double PlainLongestFirst(std::vector<double> costs, int ranks) {
  std::sort(costs.rbegin(), costs.rend());
  std::vector<double> loads(ranks, 0.0);
  for (double cost : costs) *std::min_element(loads.begin(), loads.end()) += cost;
  return *std::max_element(loads.begin(), loads.end());
}

void CheckBatches(const AssignmentProblem& problem, const OwnerAssignment& solved) {
  std::vector<int> seen(problem.class_of.size(), 0);
  std::vector<double> loads(problem.grid.size(), 0.0);
  for (const OwnerBatch& batch : solved.batches) {
    RC_ASSERT(!batch.matrices.empty());
    const int cls = problem.class_of[batch.matrices[0]];
    RC_ASSERT(batch.matrices.size() <= problem.classes[cls].batch_costs.size());
    for (std::int32_t m : batch.matrices) {
      RC_ASSERT(problem.class_of[m] == cls);
      RC_ASSERT(solved.owners[m] == batch.rank);
      ++seen[m];
    }
    loads[batch.rank] += problem.classes[cls].batch_costs[batch.matrices.size() - 1];
  }
  RC_ASSERT(seen == std::vector<int>(seen.size(), 1));
  RC_ASSERT(loads == testing::LoadsOf(problem, solved.owners));
}

RC_GTEST_PROP(OwnerAssignment, ComesWithinTheGapOfTheBestOfAll, (bool tables)) {
  const AssignmentProblem problem = DrawProblem(DrawSmallGrid(), {}, tables);
  const auto solved = SolveAssignment(problem, {});
  RC_ASSERT(solved.ok());
  const double best = BestMakespanOf(problem);
  const AssignmentReport& report = solved->report;
  RC_ASSERT(MakespanOf(problem, solved->owners) == report.makespan);
  RC_ASSERT(report.lower_bound <= best);
  RC_ASSERT(report.makespan <= report.local_search);
  RC_ASSERT(report.local_search <= report.longest_first);
  if (PatternMaster::Available()) RC_ASSERT(report.makespan <= best * 1.0051);
  CheckBatches(problem, *solved);
}

RC_GTEST_PROP(OwnerAssignment, IsNeverWorseThanLongestFirst, ()) {
  const ProcessGrid grid{*Evenly(1, 5), *Evenly(1, 9)};
  Draw draw;
  draw.most_matrices = 200;
  draw.most_classes = 30;
  draw.most_cost = 1000;
  const AssignmentProblem problem = DrawProblem(grid, draw, false);
  std::vector<double> costs;
  for (int cls : problem.class_of) costs.push_back(problem.classes[cls].batch_costs[0]);
  SolverOptions options;
  options.milp = *rc::gen::arbitrary<bool>();
  options.most_nodes = 50;
  const auto solved = SolveAssignment(problem, options);
  RC_ASSERT(solved.ok());
  const double longest_first = PlainLongestFirst(costs, grid.size());
  RC_ASSERT(solved->report.longest_first == longest_first);
  RC_ASSERT(MakespanOf(problem, solved->owners) <= longest_first);
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / grid.size();
  RC_ASSERT(solved->report.makespan >= mean);
  RC_ASSERT(solved->report.lower_bound >= mean * (1 - 1e-9));
  RC_ASSERT(solved->report.lower_bound <= solved->report.makespan);
}

// Whole ranks may change places for nothing: on 2 x 2 there are three ways to pair them.
RC_GTEST_PROP(OwnerAssignment, InterGroupsCarryAboutEqualBytes, (bool tables)) {
  Draw draw;
  draw.most_matrices = 16;
  draw.most_classes = 4;
  const AssignmentProblem problem = DrawProblem({2, 2}, draw, tables);
  SolverOptions options;
  options.most_nodes = 20;
  const auto solved = SolveAssignment(problem, options);
  RC_ASSERT(solved.ok());
  std::vector<double> bytes(4, 0.0);
  for (std::size_t m = 0; m < solved->owners.size(); ++m) {
    bytes[solved->owners[m]] +=
        static_cast<double>(problem.classes[problem.class_of[m]].inter_bytes);
  }
  const auto fullest = [&](int a, int b, int c, int d) {
    return std::max(bytes[a] + bytes[b], bytes[c] + bytes[d]);
  };
  const double best = std::min({fullest(0, 1, 2, 3), fullest(0, 2, 1, 3), fullest(0, 3, 1, 2)});
  RC_ASSERT(0.95 * fullest(0, 2, 1, 3) <= best);
  RC_CLASSIFY(fullest(0, 2, 1, 3) == best, "best");
}

RC_GTEST_PROP(OwnerAssignment, EqualProblemsGetEqualOwners, (bool tables)) {
  Draw draw;
  draw.most_matrices = 30;
  draw.most_classes = 4;
  const AssignmentProblem problem = DrawProblem({2, 4}, draw, tables);
  SolverOptions options;
  options.most_nodes = 20;
  const auto once = SolveAssignment(problem, options), again = SolveAssignment(problem, options);
  RC_ASSERT(once.ok());
  RC_ASSERT(once->owners == again->owners);
  RC_ASSERT(once->report.lower_bound == again->report.lower_bound);
}

RC_GTEST_PROP(OwnerAssignment, KeepsCapsOrSaysWhatDoesNotFit, (bool tables)) {
  AssignmentProblem problem = DrawProblem(DrawSmallGrid(), {}, tables);
  if (*rc::gen::arbitrary<bool>()) problem.state_bytes_cap = *Evenly(1, 60);
  if (*rc::gen::arbitrary<bool>()) problem.inter_group_factor = 1 + 0.1 * *Evenly(0, 20);
  for (std::size_t m = 0; m < problem.class_of.size(); ++m) {
    problem.names.push_back("m" + std::to_string(m));
  }
  const auto solved = SolveAssignment(problem, {});
  if (solved.ok()) {
    RC_ASSERT(KeepsCaps(problem, solved->owners));
    RC_ASSERT(MakespanOf(problem, solved->owners) == solved->report.makespan);
    RC_ASSERT(solved->report.lower_bound <= BestMakespanOf(problem));
    RC_ASSERT(solved->report.makespan <= solved->report.longest_first);
    RC_ASSERT(CheckCaps(problem, solved->owners).ok());
    CheckBatches(problem, *solved);
  } else {
    RC_ASSERT(solved.status().code() == absl::StatusCode::kFailedPrecondition);
    const std::string message(solved.status().message());
    RC_ASSERT(message.find("'m") != std::string::npos ||
              message.find("the matrices have") != std::string::npos);
  }
}

RC_GTEST_PROP(OwnerAssignment, BrokenCapsAreNoticed, ()) {
  AssignmentProblem problem = DrawProblem({2, 2}, {}, false);
  problem.state_bytes_cap = *Evenly(1, 60);
  problem.inter_group_factor = 1 + 0.1 * *Evenly(0, 20);
  std::vector<int> owners;
  for (std::size_t m = 0; m < problem.class_of.size(); ++m) owners.push_back(*Evenly(0, 4));
  RC_ASSERT(CheckCaps(problem, owners).ok() == KeepsCaps(problem, owners));
}

RC_GTEST_PROP(OwnerAssignment, WhatHasNoRoomIsNamed, ()) {
  AssignmentProblem problem = DrawProblem({2, 2}, {}, false);
  const int large = *Evenly(0, static_cast<int>(problem.class_of.size()));
  problem.classes.push_back({{1.0}, 1000, 0});
  problem.class_of[large] = static_cast<int>(problem.classes.size()) - 1;
  problem.state_bytes_cap = 999;
  const auto solved = SolveAssignment(problem, {});
  RC_ASSERT(solved.status().code() == absl::StatusCode::kFailedPrecondition);
  RC_ASSERT(
      std::string(solved.status().message()).find("matrix number " + std::to_string(large) + " ") !=
      std::string::npos);
}

AssignmentProblem Additive(const ProcessGrid& grid, const std::map<double, int>& counts) {
  AssignmentProblem problem;
  problem.grid = grid;
  for (const auto& [cost, count] : counts) {
    problem.class_of.insert(problem.class_of.end(), count,
                            static_cast<int>(problem.classes.size()));
    problem.classes.push_back({{cost}, 0, 0});
  }
  return problem;
}

TEST(OwnerAssignment, TheProgramFindsWhatMovesAndSwapsDoNot) {
  if (!PatternMaster::Available()) GTEST_SKIP() << "built without CBC";
  // Of a 14-billion-parameter DiT: 322 square matrices, 80 that are 2.7 times as long, one 6 times.
  const AssignmentProblem problem = Additive({4, 8}, {{1.0, 322}, {1.88, 80}, {3.7, 1}});
  const auto solved = SolveAssignment(problem, {});
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->report.taken, AssignmentMethod::kMilp);
  EXPECT_LT(solved->report.makespan, solved->report.local_search);
  EXPECT_LE(solved->report.Gap(), 0.01);
}

TEST(OwnerAssignment, AnImpossibleMakespanIsRefuted) {
  if (!PatternMaster::Available()) GTEST_SKIP() << "built without CBC";
  // Three equal matrices on two ranks: the mean load is 1.5, and nothing is below 2.
  const auto solved = SolveAssignment(Additive({1, 2}, {{1.0, 3}}), {});
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->report.makespan, 2);
  EXPECT_LE(solved->report.Gap(), 0.005);
}

TEST(OwnerAssignment, WithoutTheProgramTheBoundIsTheMeanOrTheDearest) {
  SolverOptions options;
  options.milp = false;
  const auto solved = SolveAssignment(Additive({1, 2}, {{1.0, 3}}), options);
  ASSERT_TRUE(solved.ok());
  EXPECT_FALSE(solved->report.milp_ran);
  EXPECT_NEAR(solved->report.lower_bound, 1.5, 1e-9);
  const auto dearest = SolveAssignment(Additive({1, 2}, {{1.0, 3}, {5.0, 1}}), options);
  ASSERT_TRUE(dearest.ok());
  EXPECT_NEAR(dearest->report.lower_bound, 5, 1e-9);
}

TEST(OwnerAssignment, WhenTheTimeIsUpTheHeuristicsAnswer) {
  if (!PatternMaster::Available()) GTEST_SKIP() << "built without CBC";
  ManualClock clock;
  SolverOptions options;
  options.clock = &clock;
  options.limit = 0;
  const auto solved = SolveAssignment(Additive({1, 2}, {{1.0, 3}}), options);
  ASSERT_TRUE(solved.ok());
  EXPECT_TRUE(solved->report.out_of_time);
  EXPECT_EQ(solved->report.targets, 0);
  EXPECT_EQ(solved->report.makespan, 2);
}

TEST(OwnerAssignment, MatricesOfALayerSitInDifferentInterGroups) {
  const ProcessGrid grid{2, 4};
  AssignmentProblem problem;
  problem.grid = grid;
  problem.classes = {{{7.0}, 0, 0}, {{3.0}, 0, 0}};
  for (int layer = 0; layer < 16; ++layer) {
    problem.class_of.insert(problem.class_of.end(), {0, 0, 1, 1});
    problem.layers.insert(problem.layers.end(), 4, layer);
  }
  const auto solved = SolveAssignment(problem, {});
  ASSERT_TRUE(solved.ok());
  int pairs = 0;
  for (int layer = 0; layer < 16; ++layer) {
    std::set<int> groups;
    for (int i = 0; i < 4; ++i) groups.insert(grid.local_of(solved->owners[4 * layer + i]));
    pairs += 4 - static_cast<int>(groups.size());
  }
  EXPECT_LE(pairs, 1);
}

}  // namespace
}  // namespace weft::scheduler
