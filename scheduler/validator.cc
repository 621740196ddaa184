#include "scheduler/validator.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace scheduler {

std::string DescribeOp(const Plan& plan, std::int32_t index, int rank) {
  const Op& op = plan.ops[index];
  std::string text = absl::StrCat("op ", index, " (", std::string(Name(op.kind)));
  if (op.matrix >= 0 && op.matrix < static_cast<std::int64_t>(plan.matrices.size())) {
    absl::StrAppend(&text, " of '", plan.matrices[op.matrix].name, "'");
  }
  if (op.group >= 0 && op.group < static_cast<std::int64_t>(plan.groups.size())) {
    const Group& group = plan.groups[op.group];
    const int part = group.PartOf(rank);
    absl::StrAppend(&text, IsCollective(op.kind) ? " on communicator '" : " on '",
                    part >= 0 ? group.PartName(part) : group.name, "'");
  }
  text += ")";
  return text;
}

std::vector<std::vector<std::int32_t>> OpsByMatrix(const Plan& plan) {
  std::vector<std::vector<std::int32_t>> ops(plan.matrices.size());
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    for (std::int32_t m : MatricesOf(plan, plan.ops[i])) {
      ops[m].push_back(static_cast<std::int32_t>(i));
    }
  }
  return ops;
}

}  // namespace scheduler

absl::Status ValidatePlan(const Plan& plan) {
  WEFT_RETURN_IF_ERROR(scheduler::CheckStructure(plan));
  WEFT_RETURN_IF_ERROR(scheduler::CheckLanes(plan));
  WEFT_RETURN_IF_ERROR(scheduler::CheckOrder(plan));
  WEFT_RETURN_IF_ERROR(scheduler::CheckAccesses(plan));
  WEFT_RETURN_IF_ERROR(scheduler::CheckExtents(plan));
  WEFT_RETURN_IF_ERROR(scheduler::CheckBudget(plan));
  return scheduler::CheckUpdates(plan);
}

}  // namespace weft
