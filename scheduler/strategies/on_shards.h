// Paths on which every rank keeps the momentum of its own rows: local gradients come to it by a
// reduce-scatter, of replicas also by an all-reduce among them.
#pragma once

#include "scheduler/strategies/path.h"

namespace weft::scheduler {

class OnShards : public Path {
 public:
  void Reduce(PlanBuilder& plan, std::int32_t m) const override { plan.ReduceToShards(m); }

  Holders GradientHolders(PlanBuilder& plan, std::int32_t m) const override {
    return {plan.HoldersOfShards(m), OwnGradient(plan.matrix(m))};
  }

  void Prepare(PlanBuilder& plan, std::int32_t m) const override {
    if (plan.matrix(m).rule != RuleKind::kMuon) return;
    plan.Compute(OpKind::kMomentum, plan.World(), m, Stage::kOrthogonalized,
                 {OwnGradient(plan.matrix(m)), Slot::kUpdate});
    plan.SumNormSquares(m);
  }
};

}  // namespace weft::scheduler
