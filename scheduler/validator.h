// The validator's parts. Each proves one promise and takes those of the parts before it as given;
// none relies on how plans are built.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "weft/plan.h"

namespace weft::scheduler {

// "op 7 (reduce of 'w' on communicator 'inter 1')"; the communicator is the one that `rank` is in.
std::string DescribeOp(const Plan& plan, std::int32_t index, int rank = -1);

template <typename... Parts>
absl::Status InvalidPlan(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("plan: ", parts..., "."));
}

// Indices of the ops of each matrix, in the order of the plan.
std::vector<std::vector<std::int32_t>> OpsByMatrix(const Plan& plan);

// Every index and enumerator is in range, every op has the fields that its kind needs, no
// collective has a group of one, and a communicator is used on one lane only.
absl::Status CheckStructure(const Plan& plan);

// Every op stands exactly once on its lane of every member of its group and nowhere else, and all
// members of a communicator have the same sequence on it.
absl::Status CheckLanes(const Plan& plan);

// With every collective a rendezvous and every lane a queue, no wait is cyclic; lanes and `after`
// keep the order of Plan::ops.
absl::Status CheckOrder(const Plan& plan);

// On every rank, over two steps: what an op reads was written in its step, two ops that must not
// run at the same time are ordered, and nothing changes weights or state before the verdict.
absl::Status CheckAccesses(const Plan& plan);

// SlotRows() has rows exactly where ops touch a slot, and each op's parts add up.
absl::Status CheckExtents(const Plan& plan);

// No rank's buffers exceed what the plan states, and every matrix takes what it states.
absl::Status CheckBudget(const Plan& plan);

// Every rule gets the sum over all ranks, runs once where it should, and its result reaches every
// rank once; no rank's stages of a job go backwards.
absl::Status CheckUpdates(const Plan& plan);

}  // namespace weft::scheduler
