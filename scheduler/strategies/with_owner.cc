#include "scheduler/strategies/with_owner.h"

namespace weft::scheduler {

Path::Holders WithOwner::GradientHolders(PlanBuilder& plan, std::int32_t m) const {
  const bool there = OwnerHasGradient(plan.matrix(m));
  return {plan.AnyOwner(m), there ? Slot::kGradient : Slot::kReducedGradient};
}

void WithOwner::Update(PlanBuilder& plan, absl::Span<const std::int32_t> unit) const {
  const std::int32_t m = unit[0];
  const PlanMatrix& matrix = plan.matrix(m);
  const std::int32_t owner = plan.Runners(m);
  const Slot gradient = OwnerHasGradient(matrix) ? Slot::kGradient : Slot::kReducedGradient;
  switch (matrix.rule) {
    case RuleKind::kMuon:
      plan.MuonUpdate(owner, unit, gradient, matrix.owner, /*applies=*/!Sharded(matrix));
      break;
    case RuleKind::kElementwise:
      plan.Compute(OpKind::kElementwise, owner, m, Stage::kApplied, {gradient, Slot::kWeight},
                   plan.Flops(plan.TravelsWith(m)));
      break;
    case RuleKind::kCustom:
      plan.Compute(OpKind::kCustom, owner, m, Stage::kApplied,
                   {gradient, Sharded(matrix) ? Slot::kWholeWeight : Slot::kWeight}, matrix.flops);
      break;
  }
}

void WithOwner::Deliver(PlanBuilder& plan, std::int32_t m) const {
  const PlanMatrix& matrix = plan.matrix(m);
  if (matrix.layout == Layout::kOwned) return;  // fetched when it is needed
  if (matrix.bucket >= 0) {
    plan.Compute(OpKind::kCopyRows, plan.AllButRunners(m), m, Stage::kDelivered,
                 {Slot::kPackedWeight, Slot::kWeight});
  }
  if (matrix.rule != RuleKind::kMuon || !Sharded(matrix)) return;
  plan.Compute(OpKind::kApply, plan.World(), m, Stage::kDelivered,
               {Slot::kShardDirection, Slot::kWeight});
}

}  // namespace weft::scheduler
