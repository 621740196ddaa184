#include "scheduler/trainer_items.h"

#include <algorithm>
#include <set>

namespace weft::scheduler {
namespace {

class Sequence {
 public:
  explicit Sequence(const Plan& plan) : plan_(plan) {
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      const Op& op = plan.ops[i];
      if (op.kind != OpKind::kUse) continue;
      uses_.push_back(static_cast<std::int32_t>(i));
      layers_.insert(plan.uses[op.use].layer);
    }
  }

  std::vector<TrainerItem> Take() {
    for (int pass = 0; pass < plan_.limits.passes; ++pass) {
      Forward(pass);
      Backward(pass);
    }
    return std::move(items_);
  }

 private:
  bool Owned(std::int32_t m) const { return plan_.matrices[m].layout == Layout::kOwned; }
  bool LayerIsUsed(std::int32_t m) const { return layers_.contains(plan_.matrices[m].layer); }

  // The next use, where it is of this half of a pass.
  const Use* NextUse(int pass, bool backward) const {
    if (next_ == uses_.size()) return nullptr;
    const std::int32_t use = plan_.ops[uses_[next_]].use;
    const auto half = static_cast<std::int32_t>(plan_.uses.size()) / (2 * plan_.limits.passes);
    return use / half == 2 * pass + (backward ? 1 : 0) ? &plan_.uses[use] : nullptr;
  }
  void TakeUse(int pass, bool backward) {
    items_.push_back({uses_[next_], -1, pass, backward});
    ++next_;
  }

  void Forward(int pass) {
    const auto matrices = static_cast<std::int32_t>(plan_.matrices.size());
    for (std::int32_t m = 0; m < matrices; ++m) {
      if (!Owned(m) && !LayerIsUsed(m)) items_.push_back({-1, m, pass, false});
    }
    while (const Use* use = NextUse(pass, false)) {
      TakeUse(pass, false);
      if (NextUse(pass, false) == use) continue;
      for (std::int32_t m = 0; m < matrices; ++m) {
        if (!Owned(m) && plan_.matrices[m].layer == use->layer) {
          items_.push_back({-1, m, pass, false});
        }
      }
    }
  }

  void Backward(int pass) {
    const std::vector<std::int32_t> before = FirstOps(pass);
    for (auto m = static_cast<std::int32_t>(plan_.matrices.size()) - 1; m >= 0; --m) {
      if (Owned(m)) continue;
      while (NextUse(pass, true) != nullptr && uses_[next_] < before[m]) TakeUse(pass, true);
      items_.push_back({-1, m, pass, true});
    }
    while (NextUse(pass, true) != nullptr) TakeUse(pass, true);
  }

  // By matrix that is not owned: the first op that waits for its gradient of a pass, or for that of
  // one that comes behind it in backward.
  std::vector<std::int32_t> FirstOps(int pass) const {
    std::vector<std::int32_t> first(plan_.matrices.size(),
                                    static_cast<std::int32_t>(plan_.ops.size()));
    for (std::size_t i = plan_.ops.size(); i-- > 0;) {
      const Op& op = plan_.ops[i];
      const int its = plan_.limits.reduce_each_pass ? op.pass : plan_.limits.passes - 1;
      if (op.trigger != Trigger::kSubmitted || its != pass) continue;
      for (const std::int32_t m : MatricesOf(plan_, op)) {
        if (!Owned(m)) first[m] = static_cast<std::int32_t>(i);
      }
    }
    for (std::size_t m = 1; m < first.size(); ++m) first[m] = std::min(first[m], first[m - 1]);
    return first;
  }

  const Plan& plan_;
  std::vector<std::int32_t> uses_;  // ops, in order
  std::set<std::int32_t> layers_;   // that have uses
  std::size_t next_ = 0;
  std::vector<TrainerItem> items_;
};

}  // namespace

std::vector<TrainerItem> TrainerItems(const Plan& plan) { return Sequence(plan).Take(); }

}  // namespace weft::scheduler
