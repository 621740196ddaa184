#include "scheduler/greedy.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <tuple>

#include "scheduler/assignment.h"

namespace weft::scheduler {
namespace {

bool Capped(const AssignmentProblem& problem) {
  return problem.state_bytes_cap > 0 || problem.inter_group_factor > 0;
}

// Cost of a matrix alone.
double Alone(const AssignmentProblem& problem, int matrix) {
  return problem.classes[problem.class_of[matrix]].batch_costs[0];
}

// What a rank offers to a matrix; the least is taken.
using Offer = std::tuple<double, double, std::int64_t>;

LongestFirstResult Place(const AssignmentProblem& problem, const RunCosts& costs,
                         const std::function<double(int)>& size,
                         const std::function<Offer(const RankLoads&, int, int)>& offer) {
  const int count = static_cast<int>(problem.class_of.size());
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return size(a) > size(b); });
  RankLoads loads(problem, costs);
  std::vector<std::int64_t> owned(problem.grid.size(), 0);
  LongestFirstResult result;
  result.owners.resize(count);
  for (int matrix : order) {
    const int cls = problem.class_of[matrix];
    int best = -1;
    std::tuple<Offer, std::int64_t> best_offer;
    for (int place = 0; place < problem.grid.size(); ++place) {
      const int rank = SpreadRank(problem.grid, place);
      if (!loads.Fits(rank, cls)) continue;
      const std::tuple<Offer, std::int64_t> candidate{offer(loads, rank, cls), owned[rank]};
      if (best < 0 || candidate < best_offer) {
        best = rank;
        best_offer = candidate;
      }
    }
    if (best < 0) {
      result.unplaced = matrix;
      return result;
    }
    loads.Add(best, cls);
    ++owned[best];
    result.owners[matrix] = best;
  }
  return result;
}

}  // namespace

LongestFirstResult LongestFirst(const AssignmentProblem& problem, const RunCosts& costs) {
  const int count = static_cast<int>(problem.class_of.size());
  const bool additive =
      std::all_of(problem.classes.begin(), problem.classes.end(),
                  [](const MatrixClass& cls) { return cls.batch_costs.size() == 1; });
  LongestFirstResult result;
  if (additive && !Capped(problem)) {
    std::vector<double> alone(count);
    for (int m = 0; m < count; ++m) alone[m] = Alone(problem, m);
    result.owners = AssignByCost(alone, problem.grid);
    return result;
  }
  result = Place(
      problem, costs, [&](int m) { return Alone(problem, m); },
      [](const RankLoads& loads, int rank, int cls) {
        return Offer{loads.LoadWith(rank, cls), 0, 0};
      });
  if (result.unplaced < 0 || !Capped(problem)) return result;
  const int unplaced = result.unplaced;
  const auto state = [&](int m) {
    return static_cast<double>(problem.classes[problem.class_of[m]].state_bytes);
  };
  const auto bytes = [&](int m) {
    return static_cast<double>(problem.classes[problem.class_of[m]].inter_bytes);
  };
  const auto by_state = [](const RankLoads& loads, int rank, int cls) {
    return Offer{static_cast<double>(loads.state_bytes(rank)), loads.LoadWith(rank, cls), 0};
  };
  const auto by_bytes = [&](const RankLoads& loads, int rank, int) {
    return Offer{loads.inter_bytes(problem.grid.local_of(rank)),
                 static_cast<double>(loads.state_bytes(rank)), 0};
  };
  result = Place(problem, costs, state, by_state);
  if (result.unplaced >= 0) result = Place(problem, costs, bytes, by_bytes);
  if (result.unplaced >= 0) result = Place(problem, costs, state, by_bytes);
  if (result.unplaced >= 0) result.unplaced = unplaced;
  return result;
}

namespace {

constexpr std::int64_t kMostComparisons = 20'000'000;

struct Step {
  int to = -1;
  int give = -1;
  int take = -1;  // -1: a move
  double peak = 0;
};

int Fullest(const RankLoads& loads) {
  int fullest = 0;
  for (int rank = 1; rank < loads.ranks(); ++rank) {
    if (loads.load(rank) > loads.load(fullest)) fullest = rank;
  }
  return fullest;
}

// The step between `from` and `to` that leaves the least peak, if one beats `best`.
void Compare(const RankLoads& loads, int from, int to, Step& best, std::int64_t& left) {
  const double load = loads.load(to);
  for (const auto& [give, unused] : loads.holding(from)) {
    const double without = loads.LoadWithout(from, give);
    const double with = loads.LoadWith(to, give);
    --left;
    if (std::max(without, with) < best.peak && loads.Fits(to, give, -1, from)) {
      best = {to, give, -1, std::max(without, with)};
    }
    if (without >= best.peak) continue;
    for (const auto& [take, also_unused] : loads.holding(to)) {
      if (take == give) continue;
      --left;
      const double here = without + (loads.LoadWith(from, take) - loads.load(from));
      const double there = with + (loads.LoadWithout(to, take) - load);
      if (std::max(here, there) < best.peak && loads.Fits(to, give, take, from) &&
          loads.Fits(from, take, give, to)) {
        best = {to, give, take, std::max(here, there)};
      }
    }
  }
}

}  // namespace

void Improve(double target, RankLoads& loads) {
  // Less than rounding could fake would not end.
  constexpr double kGain = 1e-9;
  std::int64_t left = kMostComparisons;
  while (left > 0) {
    const int from = Fullest(loads);
    const double peak = loads.load(from);
    if (peak <= target) return;
    Step best{-1, -1, -1, peak * (1 - kGain)};
    for (int to = 0; to < loads.ranks(); ++to) {
      if (to != from && loads.load(to) < best.peak) Compare(loads, from, to, best, left);
    }
    if (best.to < 0) return;
    loads.Remove(from, best.give);
    loads.Add(best.to, best.give);
    if (best.take < 0) continue;
    loads.Remove(best.to, best.take);
    loads.Add(from, best.take);
  }
}

}  // namespace weft::scheduler
