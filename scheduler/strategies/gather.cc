// Shards are gathered on every rank, every rank runs the rule and keeps its own rows: vanilla Muon
// under FSDP; of HSDP, inside each node. All momenta come first, then the all-gathers in use order,
// so that the next matrix is gathered while this one is in NS.
#include "absl/strings/str_cat.h"
#include "scheduler/strategies/on_shards.h"

namespace weft::scheduler {
namespace {

class Gather final : public OnShards {
 public:
  std::string Describe(const PlanMatrix& matrix) const override {
    return absl::StrCat(
        matrix.pass_through ? "pass-through: " : "gather: ", ReductionToShards(matrix),
        HasReplicas(matrix) ? "all-gather in the node, " : "all-gather, ", RuleWork(matrix),
        " on every rank, own rows kept");
  }

  void Collect(PlanBuilder& plan, std::int32_t m) const override {
    const PlanMatrix& matrix = plan.matrix(m);
    if (matrix.rule == RuleKind::kMuon) {
      plan.TakeTurn(m, Slot::kWholeUpdate, kEveryRank, plan.buffers_in_turn());
      plan.OverShards(OpKind::kAllGather, m,
                      {.stage = Stage::kOrthogonalized, .when = plan.WhenRefreshed(m)},
                      {Slot::kUpdate, Slot::kWholeUpdate});
      return;
    }
    plan.TakeTurn(m, Slot::kWholeGradient, kEveryRank, plan.buffers_in_turn());
    plan.TakeTurn(m, Slot::kWholeWeight, kEveryRank, plan.buffers_in_turn());
    plan.OverShards(OpKind::kAllGather, m, {Stage::kOrthogonalized},
                    {OwnGradient(matrix), Slot::kWholeGradient});
    plan.OverShards(OpKind::kAllGather, m, {Stage::kOrthogonalized},
                    {Slot::kWeight, Slot::kWholeWeight});
  }

  void Update(PlanBuilder& plan, absl::Span<const std::int32_t> unit) const override {
    const std::int32_t m = unit[0];
    const std::int32_t world = plan.World();
    const double flops = plan.matrix(m).flops;
    if (plan.matrix(m).rule == RuleKind::kMuon) {
      const When refreshed = plan.WhenRefreshed(m);
      plan.TakeTurn(m, Slot::kDirection, kEveryRank, 1);
      plan.Compute(OpKind::kOrthogonalize, world, m,
                   {.stage = Stage::kOrthogonalized, .when = refreshed},
                   {Slot::kWholeUpdate, Slot::kDirection}, flops);
      if (plan.Periodic(m)) plan.RowNormOfShards(m);
      plan.Compute(OpKind::kApply, world, m, {.stage = Stage::kApplied, .when = refreshed},
                   {Slot::kDirection, Slot::kWeight});
      return;
    }
    plan.Compute(OpKind::kCustom, world, m, Stage::kApplied,
                 {Slot::kWholeGradient, Slot::kWholeWeight}, flops);
    plan.Compute(OpKind::kCopyRows, world, m, Stage::kDelivered,
                 {Slot::kWholeWeight, Slot::kWeight});
  }
};

}  // namespace

const Path& GatherPath() {
  static const Gather path;
  return path;
}

}  // namespace weft::scheduler
