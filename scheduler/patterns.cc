#include "scheduler/patterns.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace weft::scheduler {

namespace {

// Loads are sums in different orders.
constexpr double kRounding = 1e-12;

}  // namespace

PatternSpace::PatternSpace(const AssignmentProblem& problem, const RunCosts& costs, double target)
    : problem_(problem), costs_(costs), target_(target * (1 + kRounding)) {
  for (int cls = 0; cls < costs.classes(); ++cls) monotone_ = monotone_ && costs.Monotone(cls);
}

int PatternSpace::Most(int cls, std::int64_t state) const {
  const std::int64_t bytes = problem_.classes[cls].state_bytes;
  if (problem_.state_bytes_cap == 0 || bytes == 0) return costs_.size(cls);
  return static_cast<int>(
      std::min<std::int64_t>(costs_.size(cls), (problem_.state_bytes_cap - state) / bytes));
}

bool PatternSpace::Contains(const Holding& holding) const {
  std::int64_t state = 0;
  for (const auto& [cls, count] : holding) state += count * problem_.classes[cls].state_bytes;
  return costs_.Of(holding) <= target_ &&
         (problem_.state_bytes_cap == 0 || state <= problem_.state_bytes_cap);
}

class PatternSpace::Enumeration {
 public:
  Enumeration(const PatternSpace& space, int most) : space_(space), most_(most) {
    double work = 0;
    for (int cls = 0; cls < space.costs_.classes(); ++cls) {
      work += space.costs_.Of(cls, space.costs_.size(cls));
    }
    const int others = space.problem_.grid.size() - 1;
    least_load_ = space.monotone_ ? work * (1 - kRounding) - others * space.target_ : 0;
  }

  std::optional<std::vector<Holding>> Run() {
    From(0, 0, 0);
    if (too_many_) return std::nullopt;
    return std::move(found_);
  }

 private:
  void From(int cls, double load, std::int64_t state) {
    if (too_many_ || ++visits_ > kMostVisits) {
      too_many_ = true;
      return;
    }
    if (cls == space_.costs_.classes()) {
      if (load < least_load_ || (space_.monotone_ && HasRoom(load, state))) return;
      found_.push_back(current_);
      too_many_ = static_cast<int>(found_.size()) > most_;
      return;
    }
    for (int count = space_.Most(cls, state); count >= 0; --count) {
      const double with = load + space_.costs_.Of(cls, count);
      if (with > space_.target_) continue;
      if (count > 0) current_.emplace_back(cls, count);
      From(cls + 1, with, state + count * space_.problem_.classes[cls].state_bytes);
      if (count > 0) current_.pop_back();
    }
  }

  bool HasRoom(double load, std::int64_t state) const {
    auto held = current_.begin();
    for (int cls = 0; cls < space_.costs_.classes(); ++cls) {
      int count = 0;
      if (held != current_.end() && held->first == cls) count = held++->second;
      if (count == space_.costs_.size(cls) || space_.Most(cls, state) < 1) continue;
      if (load - space_.costs_.Of(cls, count) + space_.costs_.Of(cls, count + 1) <=
          space_.target_) {
        return true;
      }
    }
    return false;
  }

  static constexpr std::int64_t kMostVisits = 400'000;

  const PatternSpace& space_;
  const int most_;
  double least_load_;
  std::int64_t visits_ = 0;
  bool too_many_ = false;
  Holding current_;
  std::vector<Holding> found_;
};

std::optional<std::vector<Holding>> PatternSpace::Enumerate(int most) const {
  return Enumeration(*this, most).Run();
}

// Depth first, the class with the most value per cost first; what is left of the target, filled at
// the best rate to come, bounds what a branch can still gain.
class PatternSpace::Pricing {
 public:
  Pricing(const PatternSpace& space, const std::vector<double>& values)
      : space_(space), values_(values) {
    for (int cls = 0; cls < space.costs_.classes(); ++cls) {
      if (values[cls] > 0 && space.costs_.size(cls) > 0) order_.push_back(cls);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return Rate(a) > Rate(b); });
    all_from_.assign(order_.size() + 1, 0);
    for (std::size_t i = order_.size(); i-- > 0;) {
      all_from_[i] = all_from_[i + 1] + values[order_[i]] * space.costs_.size(order_[i]);
    }
  }

  Priced Run() {
    From(0, 0, 0, 0);
    std::sort(best_.pattern.begin(), best_.pattern.end());
    return std::move(best_);
  }

 private:
  double Rate(int cls) const {
    const double cost = space_.costs_.LeastPerMatrix(cls);
    return cost > 0 ? values_[cls] / cost : std::numeric_limits<double>::infinity();
  }

  void From(std::size_t place, double load, std::int64_t state, double value) {
    if (value > best_.value) {
      best_.value = value;
      best_.pattern = current_;
    }
    if (place == order_.size() || !best_.exact) return;
    if (++visits_ > kMostVisits) {
      best_.exact = false;
      return;
    }
    const int cls = order_[place];
    const double rate = Rate(cls);
    double gain = all_from_[place];
    if (rate < std::numeric_limits<double>::infinity()) {
      gain = std::min(gain, (space_.target_ - load) * rate);
    }
    // Gains within rounding of the best are no gains.
    if (value + gain <= best_.value * (1 + kGain)) return;
    for (int count = space_.Most(cls, state); count >= 0; --count) {
      const double with = load + space_.costs_.Of(cls, count);
      if (with > space_.target_) continue;
      if (count > 0) current_.emplace_back(cls, count);
      From(place + 1, with, state + count * space_.problem_.classes[cls].state_bytes,
           value + values_[cls] * count);
      if (count > 0) current_.pop_back();
    }
  }

  static constexpr std::int64_t kMostVisits = 200'000;
  static constexpr double kGain = 1e-10;

  const PatternSpace& space_;
  const std::vector<double>& values_;
  std::vector<int> order_;
  std::vector<double> all_from_;
  std::int64_t visits_ = 0;
  Holding current_;
  Priced best_;
};

PatternSpace::Priced PatternSpace::Best(const std::vector<double>& values) const {
  return Pricing(*this, values).Run();
}

}  // namespace weft::scheduler
