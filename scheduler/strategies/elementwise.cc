// A rule that needs nothing but its own elements runs where the weight lies, under any strategy.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/strategies/path.h"

namespace weft::scheduler {
namespace {

class Elementwise final : public Path {
 public:
  std::string Describe(const PlanMatrix& matrix) const override {
    const bool sharded = IsSharded(matrix.layout);
    const std::string reduction = matrix.gradient == GradientKind::kReduced ? ""
                                  : sharded ? ReductionToShards(matrix)
                                            : "all-reduce, ";
    return absl::StrCat("element-wise: ", reduction,
                        sharded ? "every rank its rows" : "every rank all rows");
  }

  void Reduce(PlanBuilder& plan, std::int32_t m) const override {
    if (IsSharded(plan.matrix(m).layout)) return plan.ReduceToShards(m);
    if (plan.matrix(m).gradient != GradientKind::kLocal) return;
    plan.OnWorld(OpKind::kAllReduce, m, {Stage::kReduced, Trigger::kSubmitted},
                 {Slot::kGradient, plan.ReducedInto(m)});
  }

  Holders GradientHolders(PlanBuilder& plan, std::int32_t m) const override {
    const bool sharded = IsSharded(plan.matrix(m).layout);
    return {sharded ? plan.HoldersOfShards(m) : plan.AnyRank(m), OwnGradient(plan.matrix(m))};
  }

  void Update(PlanBuilder& plan, absl::Span<const std::int32_t> unit) const override {
    const std::int32_t m = unit[0];
    const PlanMatrix& matrix = plan.matrix(m);
    const Slot gradient = OwnGradient(matrix);
    double flops = plan.Flops(plan.TravelsWith(m));
    if (IsSharded(matrix.layout) && matrix.rows > 0) {
      const std::int64_t most =
          *std::max_element(matrix.shard_rows.begin(), matrix.shard_rows.end());
      flops *= static_cast<double>(most) / static_cast<double>(matrix.rows);
    }
    plan.Compute(OpKind::kElementwise, plan.World(), m, Stage::kApplied, {gradient, Slot::kWeight},
                 flops);
  }
};

}  // namespace

const Path& ElementwisePath() {
  static const Elementwise path;
  return path;
}

}  // namespace weft::scheduler
