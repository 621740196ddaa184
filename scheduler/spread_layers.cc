#include <algorithm>
#include <map>
#include <utility>

#include "scheduler/assignment.h"

namespace weft::scheduler {
namespace {

class LayerSpreader {
 public:
  LayerSpreader(const std::vector<int>& classes, const std::vector<std::int32_t>& layers,
                const ProcessGrid& grid, std::vector<int>& owners)
      : classes_(classes), layers_(layers), grid_(grid), owners_(owners) {
    for (std::size_t m = 0; m < classes_.size(); ++m) {
      ++held_[{layers_[m], Group(m)}];
      members_[classes_[m]].push_back(m);
    }
  }

  void Run() {
    constexpr int kPasses = 4;
    for (int pass = 0; pass < kPasses; ++pass) {
      bool changed = false;
      for (std::size_t m = 0; m < classes_.size(); ++m) changed = Relieve(m) || changed;
      if (!changed) return;
    }
  }

 private:
  int Group(std::size_t m) const { return grid_.local_of(owners_[m]); }

  int Held(std::int32_t layer, int group) const {
    const auto found = held_.find({layer, group});
    return found == held_.end() ? 0 : found->second;
  }

  // Looks among the nearest of the class for a trade that leaves fewer pairs of one layer in one
  // group.
  bool Relieve(std::size_t m) {
    if (Held(layers_[m], Group(m)) < 2) return false;
    constexpr std::ptrdiff_t kPartners = 128;
    const std::vector<std::size_t>& members = members_[classes_[m]];
    const auto self = std::lower_bound(members.begin(), members.end(), m);
    const auto first = self - std::min(kPartners, self - members.begin());
    const auto last = self + std::min(kPartners, members.end() - self);
    for (auto other = first; other != last; ++other) {
      if (Gain(m, *other) <= 0) continue;
      Trade(m, *other);
      return true;
    }
    return false;
  }

  // Pairs that a trade would part, less those it would join.
  int Gain(std::size_t a, std::size_t b) const {
    const int from = Group(a), to = Group(b);
    if (from == to || layers_[a] == layers_[b]) return 0;
    return Held(layers_[a], from) - 1 - Held(layers_[a], to) + Held(layers_[b], to) - 1 -
           Held(layers_[b], from);
  }

  void Trade(std::size_t a, std::size_t b) {
    for (std::size_t m : {a, b}) --held_[{layers_[m], Group(m)}];
    std::swap(owners_[a], owners_[b]);
    for (std::size_t m : {a, b}) ++held_[{layers_[m], Group(m)}];
  }

  const std::vector<int>& classes_;
  const std::vector<std::int32_t>& layers_;
  const ProcessGrid& grid_;
  std::vector<int>& owners_;
  std::map<std::pair<std::int32_t, int>, int> held_;  // matrices by layer and inter group
  std::map<int, std::vector<std::size_t>> members_;
};

}  // namespace

void SpreadLayers(const std::vector<int>& classes, const std::vector<std::int32_t>& layers,
                  const ProcessGrid& grid, std::vector<int>& owners) {
  if (grid.ranks_per_node > 1) LayerSpreader(classes, layers, grid, owners).Run();
}

}  // namespace weft::scheduler
