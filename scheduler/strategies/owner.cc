// One rank holds a matrix's state and runs its rule once in the world: strategy owner. Collectives
// go by node and by inter group where the grid has both. Or one rank of each node does, once in the
// node and the same on all: node_local. Then the sum of the gradients is all that goes between
// nodes (and, of shards over the world that come reduced, their gathering).
#include "absl/strings/str_cat.h"
#include "scheduler/strategies/with_owner.h"

namespace weft::scheduler {
namespace {

class Owner final : public WithOwner {
 public:
  explicit Owner(bool on_each_node) : on_each_node_(on_each_node) {}

  std::string Describe(const PlanMatrix& matrix) const override {
    if (on_each_node_) return DescribeOnEachNode(matrix);
    const std::string collect = OwnerHasGradient(matrix)                  ? ""
                                : matrix.gradient == GradientKind::kLocal ? "reduce, "
                                : matrix.gradient == GradientKind::kReplica
                                    ? absl::StrCat("reduce among replicas, ", GatherToOwner(matrix))
                                    : GatherToOwner(matrix);
    return absl::StrCat("owner ", matrix.owner, ": ", collect, RuleWork(matrix), ", ",
                        matrix.layout == Layout::kOwned ? "broadcast when needed"
                        : Sharded(matrix)               ? ScatterToShards(matrix)
                                                        : "broadcast");
  }

  void Reduce(PlanBuilder& plan, std::int32_t m) const override {
    const PlanMatrix& matrix = plan.matrix(m);
    if (OwnerHasGradient(matrix)) return;
    plan.ToOwner(matrix.gradient == GradientKind::kLocal ? OpKind::kReduce : OpKind::kGather, m,
                 {Stage::kReduced, Trigger::kSubmitted}, Slot::kGradient, Slot::kNodeGradient,
                 plan.ReducedInto(m));
  }

  void Collect(PlanBuilder& plan, std::int32_t m) const override {
    if (plan.matrix(m).rule != RuleKind::kCustom || !Sharded(plan.matrix(m))) return;
    plan.ToOwner(OpKind::kGather, m, {Stage::kOrthogonalized}, Slot::kWeight, Slot::kNodeWeight,
                 Slot::kWholeWeight);
  }

  void Publish(PlanBuilder& plan, std::int32_t m) const override {
    const PlanMatrix& matrix = plan.matrix(m);
    if (matrix.layout == Layout::kOwned) return;  // fetched when it is needed
    if (matrix.bucket >= 0) {
      plan.Compute(OpKind::kCopyRows, plan.Runners(m), m, Stage::kApplied,
                   {Slot::kWeight, Slot::kPackedWeight});
      plan.FromOwner(OpKind::kBroadcast, m, Stage::kPublished, Stage::kPublished,
                     Slot::kPackedWeight, Slot::kPackedWeight, Slot::kPackedWeight);
    } else if (!Sharded(matrix)) {
      plan.FromOwner(OpKind::kBroadcast, m, Stage::kPublished, Stage::kDelivered, Slot::kWeight,
                     Slot::kWeight, Slot::kWeight);
    } else if (matrix.rule == RuleKind::kCustom) {
      plan.FromOwner(OpKind::kScatter, m, Stage::kPublished, Stage::kDelivered, Slot::kWholeWeight,
                     Slot::kNodeWeight, Slot::kWeight);
    } else {
      // The weight is delivered by the apply that follows, not by the direction's arrival.
      plan.FromOwner(OpKind::kScatter, m, Stage::kPublished, Stage::kPublished, Slot::kDirection,
                     Slot::kNodeDirection, Slot::kShardDirection);
    }
  }

 private:
  static std::string DescribeOnEachNode(const PlanMatrix& matrix) {
    const std::string collect =
        OwnerHasGradient(matrix)                    ? ""
        : matrix.gradient == GradientKind::kLocal   ? "reduce, all-reduce across nodes, "
        : matrix.gradient == GradientKind::kReplica ? "all-reduce among replicas, gather, "
        : HasReplicas(matrix)                       ? "gather, "
                                                    : "gather, all-gather across nodes, ";
    return absl::StrCat("local rank ", matrix.owner, " of each node: ", collect, RuleWork(matrix),
                        ", ", Sharded(matrix) ? "scatter" : "broadcast", " in the node");
  }

  const bool on_each_node_;
};

}  // namespace

const Path& OwnerPath() {
  static const Owner path(/*on_each_node=*/false);
  return path;
}

const Path& NodeLocalPath() {
  static const Owner path(/*on_each_node=*/true);
  return path;
}

}  // namespace weft::scheduler
