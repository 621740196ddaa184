// Paths on which every rank keeps the momentum of its own rows: local gradients come to it by a
// reduce-scatter.
#pragma once

#include "scheduler/strategies/path.h"

namespace weft::scheduler {

class OnShards : public Path {
 public:
  void Reduce(PlanBuilder& plan, std::int32_t m) const override {
    if (plan.matrix(m).gradient != GradientKind::kLocal) return;
    plan.OnWorld(OpKind::kReduceScatter, m, {Stage::kReduced, Trigger::kSubmitted},
                 {Slot::kGradient, plan.ReducedInto(m)});
  }

  Holders GradientHolders(PlanBuilder& plan, std::int32_t m) const override {
    return {plan.World(), OwnGradient(plan.matrix(m))};
  }

  void Prepare(PlanBuilder& plan, std::int32_t m) const override {
    if (plan.matrix(m).rule != RuleKind::kMuon) return;
    plan.Compute(OpKind::kMomentum, plan.World(), m, Stage::kOrthogonalized,
                 {OwnGradient(plan.matrix(m)), Slot::kUpdate});
    plan.SumNormSquares(m);
  }
};

}  // namespace weft::scheduler
