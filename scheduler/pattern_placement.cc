#include "scheduler/pattern_placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace weft::scheduler {
namespace {

// Takes one matrix of `cls` from the dearest holding that has one.
void TakeOne(const RunCosts& costs, int cls, std::vector<Holding>& patterns) {
  Holding* dearest = nullptr;
  std::size_t place = 0;
  for (Holding& pattern : patterns) {
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i].first != cls) continue;
      if (dearest == nullptr || costs.Of(pattern) > costs.Of(*dearest)) {
        dearest = &pattern;
        place = i;
      }
    }
  }
  WEFT_CHECK(dearest != nullptr) << "class " << cls << " is held by nobody";
  if (--(*dearest)[place].second == 0) dearest->erase(dearest->begin() + place);
}

// Patterns of each inter group, as indices.
using Groups = std::vector<std::vector<int>>;

class Balancer {
 public:
  Balancer(const AssignmentProblem& problem, const std::vector<Holding>& patterns)
      : problem_(problem), groups_(problem.grid.ranks_per_node), sums_(groups_.size(), 0.0) {
    for (const Holding& pattern : patterns) {
      double sum = 0;
      for (const auto& [cls, count] : pattern) {
        sum += count * static_cast<double>(problem.classes[cls].inter_bytes);
      }
      bytes_.push_back(sum);
    }
  }

  // What the fullest of the groups carries.
  double Most() const { return *std::max_element(sums_.begin(), sums_.end()); }

  Groups Run() {
    std::vector<int> order(bytes_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return bytes_[a] > bytes_[b]; });
    for (int pattern : order) {
      int best = -1;
      for (std::size_t group = 0; group < groups_.size(); ++group) {
        if (static_cast<int>(groups_[group].size()) == problem_.grid.nodes) continue;
        if (best < 0 || sums_[group] < sums_[best]) best = static_cast<int>(group);
      }
      groups_[best].push_back(pattern);
      sums_[best] += bytes_[pattern];
    }
    const double cap = InterBytesCap(problem_);
    while (Most() > cap && SwapOnce()) {
    }
    return groups_;
  }

 private:
  // Swaps a pattern of the group with the most bytes for one that lowers the larger of both sums.
  bool SwapOnce() {
    const auto most =
        static_cast<std::size_t>(std::max_element(sums_.begin(), sums_.end()) - sums_.begin());
    for (std::size_t other = 0; other < groups_.size(); ++other) {
      if (other == most) continue;
      for (int& mine : groups_[most]) {
        for (int& theirs : groups_[other]) {
          const double shift = bytes_[mine] - bytes_[theirs];
          if (shift <= 0 || sums_[other] + shift >= sums_[most]) continue;
          std::swap(mine, theirs);
          sums_[most] -= shift;
          sums_[other] += shift;
          return true;
        }
      }
    }
    return false;
  }

  const AssignmentProblem& problem_;
  std::vector<double> bytes_;  // by pattern
  Groups groups_;
  std::vector<double> sums_;  // by group
};

// The rank of the `slot`-th holding of a group.
int RankInGroup(const ProcessGrid& grid, int local, int slot) {
  return grid.rank_of((local + slot) % grid.nodes, local);
}

}  // namespace

std::vector<int> BalanceGroups(const AssignmentProblem& problem, const RankLoads& loads) {
  const ProcessGrid& grid = problem.grid;
  std::vector<int> rank_for(loads.ranks());
  std::iota(rank_for.begin(), rank_for.end(), 0);
  std::vector<Holding> holdings;
  holdings.reserve(loads.ranks());
  for (int rank = 0; rank < loads.ranks(); ++rank) holdings.push_back(loads.holding(rank));
  double most = 0;
  for (int local = 0; local < grid.ranks_per_node; ++local) {
    most = std::max(most, loads.inter_bytes(local));
  }
  Balancer balancer(problem, holdings);
  const Groups groups = balancer.Run();
  if (balancer.Most() > 0.95 * most) return rank_for;
  for (int local = 0; local < grid.ranks_per_node; ++local) {
    for (int slot = 0; slot < grid.nodes; ++slot) {
      rank_for[groups[local][slot]] = RankInGroup(grid, local, slot);
    }
  }
  return rank_for;
}

std::optional<RankLoads> PlacePatterns(const AssignmentProblem& problem, const RunCosts& costs,
                                       std::vector<Holding> patterns) {
  std::vector<int> left = ClassSizes(problem);
  for (const Holding& pattern : patterns) {
    for (const auto& [cls, count] : pattern) left[cls] -= count;
  }
  for (int cls = 0; cls < costs.classes(); ++cls) {
    for (; left[cls] < 0; ++left[cls]) TakeOne(costs, cls, patterns);
  }
  patterns.resize(problem.grid.size());
  const Groups groups = Balancer(problem, patterns).Run();
  RankLoads loads(problem, costs);
  for (int local = 0; local < problem.grid.ranks_per_node; ++local) {
    for (int slot = 0; slot < problem.grid.nodes; ++slot) {
      const int rank = RankInGroup(problem.grid, local, slot);
      for (const auto& [cls, count] : patterns[groups[local][slot]]) loads.Add(rank, cls, count);
    }
  }
  const double cap = InterBytesCap(problem);
  for (int local = 0; local < problem.grid.ranks_per_node; ++local) {
    if (loads.inter_bytes(local) > cap) return std::nullopt;
  }
  std::vector<int> dearest(costs.classes());
  std::iota(dearest.begin(), dearest.end(), 0);
  std::stable_sort(dearest.begin(), dearest.end(),
                   [&](int a, int b) { return costs.LeastAtAll(a) > costs.LeastAtAll(b); });
  for (int cls : dearest) {
    for (; left[cls] > 0; --left[cls]) {
      int best = -1;
      for (int rank = 0; rank < loads.ranks(); ++rank) {
        if (!loads.Fits(rank, cls)) continue;
        if (best < 0 || loads.LoadWith(rank, cls) < loads.LoadWith(best, cls)) best = rank;
      }
      if (best < 0) return std::nullopt;
      loads.Add(best, cls);
    }
  }
  return loads;
}

}  // namespace weft::scheduler
