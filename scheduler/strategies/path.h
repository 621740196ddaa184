// One way of updating a matrix, as the phases of a step. BuildPlan() runs a phase for all matrices
// before the next phase begins, so a phase's ops stand together in every lane. Matrices of a bucket
// go by its first.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "scheduler/plan_builder.h"

namespace weft::scheduler {

class Path {
 public:
  virtual ~Path() = default;

  virtual std::string Describe(const PlanMatrix& matrix) const = 0;

  // During a backward pass, last matrix first: into PlanBuilder::ReducedInto().
  virtual void Reduce(PlanBuilder& plan, std::int32_t m) const = 0;
  // The ranks among which every row of the reduced gradient lies exactly once, and its slot there.
  struct Holders {
    std::int32_t group;
    Slot slot;
  };
  virtual Holders GradientHolders(PlanBuilder& plan, std::int32_t m) const = 0;
  // After the step is closed. First matrix first: compute that communication waits for,
  virtual void Prepare(PlanBuilder&, std::int32_t) const {}
  // communication that the update waits for, at most limits.buffers_in_turn matrices ahead of it,
  virtual void Collect(PlanBuilder&, std::int32_t) const {}
  // and the update, of one matrix or bucket, or of those whose NS is one batch.
  virtual void Update(PlanBuilder& plan, absl::Span<const std::int32_t> unit) const = 0;
  // In the order in which owners finish: what takes the result to the ranks,
  virtual void Publish(PlanBuilder&, std::int32_t) const {}
  // and what they do with it.
  virtual void Deliver(PlanBuilder&, std::int32_t) const {}
};

// Serves kLocal as well: in a world of one nothing has to be reduced.
const Path& ReplicatedPath();
const Path& GatherPath();
const Path& OwnerPath();
const Path& NodeLocalPath();
const Path& OwnerOfShardsPath();
const Path& LayerwisePath();
const Path& ElementwisePath();

// Where a rank has the reduced gradient of what it updates itself, whole or its own rows.
inline Slot OwnGradient(const PlanMatrix& matrix) {
  return matrix.gradient == GradientKind::kReduced ? Slot::kGradient : Slot::kReducedGradient;
}

// How the gradient of a matrix in shards comes to them, with a comma behind it.
inline std::string ReductionToShards(const PlanMatrix& matrix) {
  if (matrix.gradient == GradientKind::kReduced) return "";
  const bool local = matrix.gradient == GradientKind::kLocal;
  return absl::StrCat(local ? "reduce-scatter, " : "",
                      HasReplicas(matrix) ? "all-reduce among replicas, " : "");
}
// How shards come to the owner, and how its result comes back to them.
inline std::string GatherToOwner(const PlanMatrix& matrix) {
  return HasReplicas(matrix) ? "gather in its node, " : "gather, ";
}
inline std::string ScatterToShards(const PlanMatrix& matrix) {
  return HasReplicas(matrix) ? "scatter in its node, broadcast to replicas" : "scatter";
}

// The name of a rule's work in descriptions.
inline std::string RuleWork(const PlanMatrix& matrix) {
  if (matrix.period > 1) {
    return absl::StrCat("NS every ", matrix.period, " steps, else row norm");
  }
  return matrix.rule == RuleKind::kMuon     ? "NS"
         : matrix.rule == RuleKind::kCustom ? "custom rule"
                                            : "element-wise";
}

}  // namespace weft::scheduler
