// Periodic matrices in shards under strategy owner: every rank keeps the momentum of its rows, and
// between refreshes a row norm needs at most a vector of the others. A refresh gathers the update
// on one rank, which runs NS, and scatters the direction: NS runs once in the world.
#include "absl/strings/str_cat.h"
#include "scheduler/strategies/on_shards.h"

namespace weft::scheduler {
namespace {

class OwnerOfShards final : public OnShards {
 public:
  std::string Describe(const PlanMatrix& matrix) const override {
    return absl::StrCat("shards with owner ", matrix.owner, ": ", ReductionToShards(matrix),
                        GatherToOwner(matrix), RuleWork(matrix), ", ", ScatterToShards(matrix));
  }

  void Collect(PlanBuilder& plan, std::int32_t m) const override {
    plan.TakeTurn(m, Slot::kWholeUpdate, plan.matrix(m).owner, plan.buffers_in_turn());
    plan.ToOwner(OpKind::kGather, m, {.stage = Stage::kOrthogonalized, .when = When::kRefresh},
                 Slot::kUpdate, Slot::kNodeUpdate, Slot::kWholeUpdate);
  }

  void Update(PlanBuilder& plan, absl::Span<const std::int32_t> unit) const override {
    const std::int32_t m = unit[0];
    plan.Compute(OpKind::kOrthogonalize, plan.Rank(plan.matrix(m).owner), m,
                 {.stage = Stage::kOrthogonalized, .when = When::kRefresh},
                 {Slot::kWholeUpdate, Slot::kDirection}, plan.matrix(m).flops);
    plan.RowNormOfShards(m);
  }

  void Publish(PlanBuilder& plan, std::int32_t m) const override {
    plan.FromOwner(OpKind::kScatter, m, Stage::kPublished, Stage::kPublished, Slot::kDirection,
                   Slot::kNodeDirection, Slot::kShardDirection, When::kRefresh);
  }

  void Deliver(PlanBuilder& plan, std::int32_t m) const override {
    plan.Compute(OpKind::kApply, plan.World(), m,
                 {.stage = Stage::kDelivered, .when = When::kRefresh},
                 {Slot::kShardDirection, Slot::kWeight});
  }
};

}  // namespace

const Path& OwnerOfShardsPath() {
  static const OwnerOfShards path;
  return path;
}

}  // namespace weft::scheduler
