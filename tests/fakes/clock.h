// Vector clocks: what is ordered before what.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft::fakes {

// One component for each stream. Everything that happened on a stream up to its tick At(component)
// is ordered before whoever has this clock.
class Clock {
 public:
  std::uint32_t At(std::size_t component) const {
    return component < ticks_.size() ? ticks_[component] : 0;
  }
  void Tick(std::size_t component) {
    if (ticks_.size() <= component) ticks_.resize(component + 1, 0);
    ++ticks_[component];
  }
  void Join(const Clock& other) {
    if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size(), 0);
    for (std::size_t i = 0; i < other.ticks_.size(); ++i) {
      ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
    }
  }
  bool Includes(const Clock& other) const {
    for (std::size_t i = 0; i < other.ticks_.size(); ++i) {
      if (other.ticks_[i] > At(i)) return false;
    }
    return true;
  }

 private:
  std::vector<std::uint32_t> ticks_;
};

}  // namespace weft::fakes
