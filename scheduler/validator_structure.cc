#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/access.h"
#include "scheduler/slots.h"
#include "scheduler/validator.h"

namespace weft::scheduler {
namespace {

bool InRange(std::int64_t index, std::size_t size) {
  return index >= 0 && index < static_cast<std::int64_t>(size);
}

absl::Status CheckMatrix(const Plan& plan, const PlanMatrix& matrix) {
  const int ranks = plan.topology.grid.size();
  if (matrix.rows < 0 || matrix.cols < 0 || TooLarge(matrix.rows, matrix.cols)) {
    return InvalidPlan("matrix '", matrix.name, "' has a negative or too large shape");
  }
  if (matrix.layout == Layout::kSharded) {
    std::int64_t rows = 0;
    for (std::int64_t shard : matrix.shard_rows) {
      if (shard < 0 || shard > matrix.rows - rows) rows = -1;
      if (rows < 0) break;
      rows += shard;
    }
    if (matrix.shard_rows.size() != static_cast<std::size_t>(ranks) || rows != matrix.rows) {
      return InvalidPlan("matrix '", matrix.name, "' has shards that are not its rows");
    }
  }
  const bool owned = plan.strategy == Strategy::kOwner && matrix.rule != RuleKind::kElementwise;
  if (owned ? !InRange(matrix.owner, ranks) : matrix.owner != -1) {
    return InvalidPlan("matrix '", matrix.name, "' has the owner ", matrix.owner);
  }
  return absl::OkStatus();
}

absl::Status CheckGroup(const Group& group, int ranks) {
  if (group.ranks.empty()) return InvalidPlan("group '", group.name, "' is empty");
  int last = -1;
  for (int rank : group.ranks) {
    if (rank <= last || rank >= ranks) {
      return InvalidPlan("group '", group.name, "' lists rank ", rank,
                         ", which is not above the one before it or not in the world");
    }
    last = rank;
  }
  return absl::OkStatus();
}

absl::Status CheckOp(const Plan& plan, std::int32_t index) {
  const Op& op = plan.ops[index];
  const std::string what = DescribeOp(plan, index);
  if (op.kind > OpKind::kCopyRows || op.lane > Lane::kInter || op.stage > Stage::kDelivered ||
      op.trigger > Trigger::kStepClosed || op.source > Slot::kWholeWeight ||
      op.target > Slot::kWholeWeight) {
    return InvalidPlan(what, " has a field that names nothing");
  }
  const bool verdict = op.kind == OpKind::kVerdict;
  if (!InRange(op.group, plan.groups.size())) return InvalidPlan(what, " has no group");
  if (verdict ? op.matrix != -1 : !InRange(op.matrix, plan.matrices.size())) {
    return InvalidPlan(what, " has the matrix index ", op.matrix);
  }
  const bool writes_none = verdict || op.kind == OpKind::kCheckGradient;
  if ((op.source == Slot::kNone) != verdict || (op.target == Slot::kNone) != writes_none) {
    return InvalidPlan(what, writes_none ? " has a slot too many" : " lacks a slot");
  }
  const std::vector<int>& ranks = plan.groups[op.group].ranks;
  const bool alone = plan.topology.grid.size() == 1;
  if (IsCollective(op.kind) && ranks.size() == 1 && !(verdict && alone)) {
    return InvalidPlan(what, " is a collective of rank ", ranks[0], " alone");
  }
  const bool on_compute = !IsCollective(op.kind) || (verdict && alone);
  if ((op.lane == Lane::kCompute) != on_compute) {
    return InvalidPlan(what, " must not be on the ", std::string(Name(op.lane)), " lane");
  }
  if (IsRooted(op.kind) ? !std::binary_search(ranks.begin(), ranks.end(), op.root)
                        : op.root != -1) {
    return InvalidPlan(what, " has the root ", op.root, ", which is ",
                       IsRooted(op.kind) ? "no member" : "one too many");
  }
  if (op.bytes < 0 || !(op.flops >= 0)) return InvalidPlan(what, " has a negative cost");
  for (const std::vector<std::int32_t>* list : {&op.after, &op.after_previous}) {
    for (std::int32_t before : *list) {
      if (!InRange(before, plan.ops.size())) {
        return InvalidPlan(what, " comes after op ", before, ", which does not exist");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStructure(const Plan& plan) {
  const ProcessGrid& grid = plan.topology.grid;
  if (!Validate(plan.topology).ok() || plan.lanes.size() != static_cast<std::size_t>(grid.size())) {
    return InvalidPlan("it has lanes for ", plan.lanes.size(), " ranks on a grid of ", grid.nodes,
                       " x ", grid.ranks_per_node);
  }
  for (const PlanMatrix& matrix : plan.matrices) WEFT_RETURN_IF_ERROR(CheckMatrix(plan, matrix));
  for (const Group& group : plan.groups) WEFT_RETURN_IF_ERROR(CheckGroup(group, grid.size()));
  constexpr int kUnused = -1;
  std::vector<int> lane_of_group(plan.groups.size(), kUnused);
  int verdicts = 0;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    WEFT_RETURN_IF_ERROR(CheckOp(plan, index));
    const Op& op = plan.ops[i];
    if (op.kind == OpKind::kCheckGradient && verdicts > 0) {
      return InvalidPlan(DescribeOp(plan, index), " comes after the verdict");
    }
    if (!IsCollective(op.kind)) continue;
    int& lane = lane_of_group[op.group];
    if (lane != kUnused && lane != static_cast<int>(op.lane)) {
      return InvalidPlan(DescribeOp(plan, index), " is on the ", std::string(Name(op.lane)),
                         " lane, its communicator on the ",
                         std::string(Name(static_cast<Lane>(lane))), " lane");
    }
    lane = static_cast<int>(op.lane);
    if (op.kind != OpKind::kVerdict) continue;
    ++verdicts;
    const std::int64_t bytes = 4 * VerdictFloats(plan.matrices.size(), grid.size());
    if (op.bytes != bytes) {
      return InvalidPlan(DescribeOp(plan, index), " carries ", op.bytes, " bytes, not ", bytes);
    }
    if (plan.groups[op.group].ranks.size() != static_cast<std::size_t>(grid.size())) {
      return InvalidPlan(DescribeOp(plan, index), " must include every rank");
    }
  }
  if (verdicts != 1) return InvalidPlan("it has ", verdicts, " verdicts, not one");
  return absl::OkStatus();
}

}  // namespace weft::scheduler
