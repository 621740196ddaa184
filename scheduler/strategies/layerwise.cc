// One rank holds a matrix's state and runs its rule, as under owner, but collectives are of the
// whole world and of many owners' matrices at once: distributed Muon as in Megatron and Moonlight.
// What is alone in its exchange goes by the collectives of one root.
#include "absl/strings/str_cat.h"
#include "scheduler/strategies/with_owner.h"

namespace weft::scheduler {
namespace {

class Layerwise final : public WithOwner {
 public:
  std::string Describe(const PlanMatrix& matrix) const override {
    const bool together = matrix.exchange >= 0;
    const std::string collect = OwnerHasGradient(matrix)                    ? ""
                                : matrix.gradient == GradientKind::kReduced ? "gather, "
                                : together                                  ? "reduce-scatter, "
                                                                            : "reduce, ";
    return absl::StrCat("layerwise, owner ", matrix.owner, ": ", collect, RuleWork(matrix), ", ",
                        Sharded(matrix) ? "scatter"
                        : together      ? "all-gather"
                                        : "broadcast");
  }

  void Reduce(PlanBuilder& plan, std::int32_t m) const override {
    const PlanMatrix& matrix = plan.matrix(m);
    if (OwnerHasGradient(matrix)) return;
    const bool local = matrix.gradient == GradientKind::kLocal;
    const PlanBuilder::Place place = {Stage::kReduced, Trigger::kSubmitted};
    if (matrix.exchange < 0) {
      plan.OnWorld(local ? OpKind::kReduce : OpKind::kGather, m, place,
                   {Slot::kGradient, plan.ReducedInto(m)}, matrix.owner);
    } else if (plan.CompletesExchange(m)) {
      plan.OnExchange(local ? OpKind::kReduceScatter : OpKind::kGather, m, place,
                      {Slot::kGradient, plan.ReducedInto(m)});
    }
  }

  void Collect(PlanBuilder& plan, std::int32_t m) const override {
    const PlanMatrix& matrix = plan.matrix(m);
    if (matrix.rule != RuleKind::kCustom || !Sharded(matrix)) return;
    plan.OnWorld(OpKind::kGather, m, {Stage::kOrthogonalized}, {Slot::kWeight, Slot::kWholeWeight},
                 matrix.owner);
  }

  void Publish(PlanBuilder& plan, std::int32_t m) const override {
    const PlanMatrix& matrix = plan.matrix(m);
    const bool together = matrix.exchange >= 0;
    if (together && !plan.CompletesExchange(m)) return;
    if (!Sharded(matrix)) {
      const PlanBuilder::Slots slots = {Slot::kWeight, Slot::kWeight};
      if (together) {
        plan.OnExchange(OpKind::kAllGather, m, {Stage::kDelivered}, slots);
      } else {
        plan.OnWorld(OpKind::kBroadcast, m, {Stage::kDelivered}, slots, matrix.owner);
      }
    } else if (matrix.rule == RuleKind::kCustom) {
      plan.OnWorld(OpKind::kScatter, m, {Stage::kDelivered}, {Slot::kWholeWeight, Slot::kWeight},
                   matrix.owner);
    } else {
      // The weight is delivered by the apply that follows, not by the direction's arrival.
      const PlanBuilder::Slots slots = {Slot::kDirection, Slot::kShardDirection};
      if (together) {
        plan.OnExchange(OpKind::kScatter, m, {Stage::kPublished}, slots);
      } else {
        plan.OnWorld(OpKind::kScatter, m, {Stage::kPublished}, slots, matrix.owner);
      }
    }
  }
};

}  // namespace

const Path& LayerwisePath() {
  static const Layerwise path;
  return path;
}

}  // namespace weft::scheduler
