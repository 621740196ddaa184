// Every rank runs the rule on the whole matrix: vanilla Muon under DDP, and any world of one.
#include "absl/strings/str_cat.h"
#include "scheduler/strategies/path.h"

namespace weft::scheduler {
namespace {

class Replicated final : public Path {
 public:
  std::string Describe(const PlanMatrix& matrix) const override {
    return absl::StrCat(matrix.pass_through ? "pass-through: " : "replicated: ",
                        matrix.gradient == GradientKind::kLocal ? "all-reduce, " : "",
                        RuleWork(matrix), " on every rank");
  }

  void Reduce(PlanBuilder& plan, std::int32_t m) const override {
    if (plan.alone() || plan.matrix(m).gradient != GradientKind::kLocal) return;
    plan.OnWorld(OpKind::kAllReduce, m, {Stage::kReduced, Trigger::kSubmitted},
                 {Slot::kGradient, plan.ReducedInto(m)});
  }

  Holders GradientHolders(PlanBuilder& plan, std::int32_t m) const override {
    const bool reduced = !plan.alone() && plan.matrix(m).gradient == GradientKind::kLocal;
    return {plan.AnyRank(m), reduced ? Slot::kReducedGradient : Slot::kGradient};
  }

  void Update(PlanBuilder& plan, absl::Span<const std::int32_t> unit) const override {
    const std::int32_t m = unit[0];
    const PlanMatrix& matrix = plan.matrix(m);
    const Slot gradient = GradientHolders(plan, m).slot;
    const std::int32_t world = plan.World();
    switch (matrix.rule) {
      case RuleKind::kMuon:
        plan.MuonUpdate(world, unit, gradient, kEveryRank, /*applies=*/true);
        break;
      case RuleKind::kElementwise:
        plan.Compute(OpKind::kElementwise, world, m, Stage::kApplied, {gradient, Slot::kWeight},
                     plan.Flops(plan.TravelsWith(m)));
        break;
      case RuleKind::kCustom:
        plan.Compute(OpKind::kCustom, world, m, Stage::kApplied, {gradient, Slot::kWeight},
                     matrix.flops);
        break;
    }
  }
};

}  // namespace

const Path& ReplicatedPath() {
  static const Replicated path;
  return path;
}

}  // namespace weft::scheduler
