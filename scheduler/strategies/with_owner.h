// What the owner of a matrix does with it, and each rank with what comes back, however the matrix
// comes to its owner and leaves it.
#pragma once

#include "scheduler/strategies/path.h"

namespace weft::scheduler {

class WithOwner : public Path {
 public:
  Holders GradientHolders(PlanBuilder& plan, std::int32_t m) const override;
  void Update(PlanBuilder& plan, absl::Span<const std::int32_t> unit) const override;
  void Deliver(PlanBuilder& plan, std::int32_t m) const override;

 protected:
  static bool Sharded(const PlanMatrix& matrix) { return IsSharded(matrix.layout); }
  static bool OwnerHasGradient(const PlanMatrix& matrix) {
    return matrix.gradient == GradientKind::kReduced && !Sharded(matrix);
  }
};

}  // namespace weft::scheduler
