#include "scheduler/assignment.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>

namespace weft::scheduler {

int SpreadRank(const ProcessGrid& grid, std::int64_t w) {
  const std::int64_t local = w % grid.ranks_per_node;
  const std::int64_t node = (local + w / grid.ranks_per_node) % grid.nodes;
  return grid.rank_of(static_cast<int>(node), static_cast<int>(local));
}

std::vector<int> AssignByCost(const std::vector<double>& costs, const ProcessGrid& grid) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  // Load, matrices, place in spread order.
  using Bin = std::tuple<double, std::int64_t, std::int64_t>;
  std::priority_queue<Bin, std::vector<Bin>, std::greater<>> bins;
  for (int place = 0; place < grid.size(); ++place) bins.emplace(0.0, 0, place);
  std::vector<int> owners(costs.size());
  for (std::size_t index : order) {
    const auto [load, count, place] = bins.top();
    bins.pop();
    owners[index] = SpreadRank(grid, place);
    bins.emplace(load + costs[index], count + 1, place);
  }
  return owners;
}

namespace {

// The owners that the matrices of one class have among them, by place in spread order.
using Places = std::map<int, int>;

class Spreader {
 public:
  Spreader(const std::vector<int>& class_of, const ProcessGrid& grid, std::vector<int>& owners)
      : class_of_(class_of), grid_(grid), owners_(owners), place_of_(grid.size()) {
    for (int place = 0; place < grid.size(); ++place) place_of_[SpreadRank(grid, place)] = place;
  }

  // Takes the matrices in use order; each takes, of what its class has left, the place that
  // clashes least with its predecessor, the next in spread order among equals.
  void Deal() {
    std::map<int, Places> left;
    for (std::size_t i = 0; i < class_of_.size(); ++i) ++left[class_of_[i]][place_of_[owners_[i]]];
    int want = 0;
    for (std::size_t i = 0; i < class_of_.size(); ++i) {
      Places& places = left[class_of_[i]];
      const int place = Best(places, want, i == 0 ? -1 : owners_[i - 1]);
      owners_[i] = SpreadRank(grid_, place);
      if (--places[place] == 0) places.erase(place);
      want = (place + 1) % grid_.size();
    }
  }

  // Dealing may leave clashing places to the last matrices of a class; trading with another of the
  // class repairs most of that.
  void Repair() {
    constexpr std::size_t kPartners = 128;
    std::map<int, std::vector<std::size_t>> classes;
    for (std::size_t i = 0; i < class_of_.size(); ++i) classes[class_of_[i]].push_back(i);
    for (std::size_t i = 1; i < class_of_.size(); ++i) {
      if (Clash(i) == 0) continue;
      const std::vector<std::size_t>& members = classes[class_of_[i]];
      const auto self = std::lower_bound(members.begin(), members.end(), i) - members.begin();
      const std::size_t first = std::max<std::ptrdiff_t>(0, self - std::ptrdiff_t{kPartners});
      for (std::size_t p = first; p < members.size() && p < self + kPartners; ++p) {
        if (TradeHelps(i, members[p])) break;
      }
    }
  }

 private:
  int Best(const Places& places, int want, int previous) const {
    const auto score = [&](int place) {
      return previous < 0 ? 0 : ClashOf(previous, SpreadRank(grid_, place));
    };
    auto it = places.lower_bound(want);
    int best = -1, best_score = 0;
    for (std::size_t seen = 0; seen < places.size(); ++seen, ++it) {
      if (it == places.end()) it = places.begin();
      const int s = score(it->first);
      // A place in another inter group that comes next in spread order is good enough: looking
      // further for another node would break up the blocks that visit every rank.
      if (best < 0 || s < best_score) {
        best = it->first;
        best_score = s;
      }
      if (best == want && best_score <= kSameNode) break;
      if (best_score == 0) break;
    }
    return best;
  }

  static constexpr int kSameNode = 1;
  static constexpr int kSameInterGroup = 2;

  // A clash that no assignment can avoid does not count.
  int ClashOf(int a, int b) const {
    const bool same_local = grid_.ranks_per_node > 1 && grid_.local_of(a) == grid_.local_of(b);
    const bool same_node = grid_.nodes > 1 && grid_.node_of(a) == grid_.node_of(b);
    return (same_local ? kSameInterGroup : 0) + (same_node ? kSameNode : 0);
  }

  // Of matrix i with the one before it.
  int Clash(std::size_t i) const {
    return i == 0 || i >= owners_.size() ? 0 : ClashOf(owners_[i - 1], owners_[i]);
  }

  int ClashAround(std::size_t a, std::size_t b) const {
    int sum = Clash(a) + Clash(a + 1);
    if (b != a && b != a + 1) sum += Clash(b);
    if (b + 1 != a && b + 1 != a + 1) sum += Clash(b + 1);
    return sum;
  }

  bool TradeHelps(std::size_t a, std::size_t b) {
    if (owners_[a] == owners_[b]) return false;
    // Only clashes of inter groups are worth leaving the spread order for.
    const int before = ClashAround(a, b);
    if (before < kSameInterGroup) return false;
    std::swap(owners_[a], owners_[b]);
    if (ClashAround(a, b) + 1 < before) return true;
    std::swap(owners_[a], owners_[b]);
    return false;
  }

  const std::vector<int>& class_of_;
  const ProcessGrid& grid_;
  std::vector<int>& owners_;
  std::vector<int> place_of_;
};

}  // namespace

void SpreadOwners(const std::vector<int>& classes, const ProcessGrid& grid,
                  std::vector<int>& owners) {
  Spreader spreader(classes, grid, owners);
  spreader.Deal();
  spreader.Repair();
}

}  // namespace weft::scheduler
