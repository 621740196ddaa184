#include "scheduler/assignment.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "tests/scheduler/requests.h"

namespace weft::scheduler {
namespace {

std::vector<double> Loads(const std::vector<double>& costs, const std::vector<int>& owners,
                          int ranks) {
  std::vector<double> loads(ranks);
  for (std::size_t i = 0; i < costs.size(); ++i) loads[owners[i]] += costs[i];
  return loads;
}

double Makespan(const std::vector<double>& costs, const std::vector<int>& owners, int ranks) {
  const std::vector<double> loads = Loads(costs, owners, ranks);
  return *std::max_element(loads.begin(), loads.end());
}

// Equal costs are one class.
std::vector<int> ClassesOf(const std::vector<double>& costs) {
  std::map<double, int> known;
  std::vector<int> classes;
  for (const double cost : costs) {
    classes.push_back(known.emplace(cost, static_cast<int>(known.size())).first->second);
  }
  return classes;
}

// Over all assignments.
double BestMakespan(const std::vector<double>& costs, int ranks) {
  std::vector<int> owners(costs.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  while (true) {
    best = std::min(best, Makespan(costs, owners, ranks));
    std::size_t digit = 0;
    while (digit < owners.size() && ++owners[digit] == ranks) owners[digit++] = 0;
    if (digit == owners.size()) return best;
  }
}

// Whole numbers, so that loads are exact.
std::vector<double> DrawCosts(int most, int most_cost) {
  std::vector<double> costs(*testing::Evenly(1, most + 1));
  for (double& cost : costs) cost = *testing::Evenly(0, most_cost + 1);
  return costs;
}

RC_GTEST_PROP(Assignment, MakespanIsWithinGrahamsBoundOfTheBest, ()) {
  const ProcessGrid grid =
      *rc::gen::element(ProcessGrid{1, 2}, ProcessGrid{3, 1}, ProcessGrid{2, 2});
  const std::vector<double> costs = DrawCosts(7, 30);
  const double bound = 4.0 / 3 - 1.0 / (3 * grid.size());
  RC_ASSERT(Makespan(costs, AssignByCost(costs, grid), grid.size()) <=
            bound * BestMakespan(costs, grid.size()) * (1 + 1e-12));
}

RC_GTEST_PROP(Assignment, NoRankExceedsTheMeanByMoreThanOneMatrix, ()) {
  const ProcessGrid grid{*testing::Evenly(1, 6), *testing::Evenly(1, 9)};
  const std::vector<double> costs = DrawCosts(200, 1000);
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / grid.size();
  const double most = *std::max_element(costs.begin(), costs.end());
  RC_ASSERT(Makespan(costs, AssignByCost(costs, grid), grid.size()) <=
            mean + most * (1 - 1.0 / grid.size()) + 1e-9);
}

RC_GTEST_PROP(Assignment, SpreadingKeepsLoadsAndIsDeterministic, ()) {
  const ProcessGrid grid{*testing::Evenly(1, 5), *testing::Evenly(1, 5)};
  const std::vector<double> costs = DrawCosts(80, 5);
  const std::vector<int> before = AssignByCost(costs, grid);
  std::vector<int> after = before, again = before;
  SpreadOwners(ClassesOf(costs), grid, after);
  SpreadOwners(ClassesOf(costs), grid, again);
  RC_ASSERT(after == again);
  RC_ASSERT(Loads(costs, after, grid.size()) == Loads(costs, before, grid.size()));
  RC_ASSERT(AssignByCost(costs, grid) == before);
}

TEST(Assignment, EqualCostsVisitEveryRankOncePerBlockAndChangeInterGroupEachTime) {
  for (const ProcessGrid& grid : {ProcessGrid{2, 2}, ProcessGrid{4, 4}, ProcessGrid{3, 8}}) {
    for (int count : {grid.size(), 3 * grid.size(), 3 * grid.size() + 5}) {
      const std::vector<double> costs(count, 7.0);
      std::vector<int> owners = AssignByCost(costs, grid);
      SpreadOwners(ClassesOf(costs), grid, owners);
      for (int w = 0; w < count; ++w) {
        const int local = w % grid.ranks_per_node;
        const int node = (local + w / grid.ranks_per_node) % grid.nodes;
        EXPECT_EQ(owners[w], grid.rank_of(node, local));
        if (w == 0) continue;
        EXPECT_NE(grid.local_of(owners[w]), grid.local_of(owners[w - 1]));
      }
      for (int block = 0; block + grid.size() <= count; block += grid.size()) {
        EXPECT_EQ(
            std::set<int>(owners.begin() + block, owners.begin() + block + grid.size()).size(),
            static_cast<std::size_t>(grid.size()));
      }
    }
  }
}

TEST(Assignment, LayersOfUnequalMatricesStillChangeInterGroup) {
  // Query, key, value, output, gate, up and down of 24 layers.
  std::vector<double> costs;
  for (int layer = 0; layer < 24; ++layer) {
    costs.insert(costs.end(), {16, 4, 4, 16, 43, 43, 43});
  }
  for (const ProcessGrid& grid : {ProcessGrid{2, 2}, ProcessGrid{4, 4}, ProcessGrid{2, 8}}) {
    std::vector<int> owners = AssignByCost(costs, grid);
    SpreadOwners(ClassesOf(costs), grid, owners);
    int clashes = 0;
    for (std::size_t i = 1; i < owners.size(); ++i) {
      clashes += grid.local_of(owners[i]) == grid.local_of(owners[i - 1]);
    }
    EXPECT_LE(clashes, 2) << grid.nodes << " x " << grid.ranks_per_node;
  }
}

TEST(Assignment, FreeMatricesAreSharedOutToo) {
  const ProcessGrid grid{1, 4};
  const std::vector<int> owners = AssignByCost(std::vector<double>(8, 0.0), grid);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(std::count(owners.begin(), owners.end(), rank), 2);
}

}  // namespace
}  // namespace weft::scheduler
