#include "runtime/job_check.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/slots.h"

namespace weft::runtime {

std::vector<MicroSteps> MicroStepsOf(const Plan& plan) {
  std::vector<MicroSteps> micro_steps(plan.matrices.size());
  for (std::size_t m = 0; m < plan.matrices.size(); ++m) {
    // In a world of one, too, where nothing is reduced: a trainer works on any number of ranks.
    if (scheduler::EachPassHasGradient(plan.limits, plan.matrices[m])) {
      micro_steps[m].meant = plan.limits.passes;
    }
  }
  return micro_steps;
}

absl::Status CheckJob(const std::string& matrix, const MicroSteps& micro_steps,
                      const MatrixJob& job) {
  for (const auto& [what, value] :
       {std::pair("lr", job.lr), std::pair("weight_decay", job.weight_decay)}) {
    if (value.value_or(0) >= 0 && std::isfinite(value.value_or(0))) continue;
    return absl::InvalidArgumentError(absl::StrCat("matrix '", matrix, "': ", what, " is ", *value,
                                                   ", not a finite number >= 0"));
  }
  if (micro_steps.meant == 0 || job.more == (micro_steps.done + 1 < micro_steps.meant)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("matrix '", matrix, "': its job of micro-step ", micro_steps.done + 1, " of ",
                   micro_steps.meant, " (limits.passes, each of which is reduced) says that ",
                   job.more ? "more gradients follow" : "no more gradients follow"));
}

std::string WhatIsMissing(const std::string& matrix, const MicroSteps& micro_steps) {
  std::string text = absl::StrCat("'", matrix, "'");
  if (micro_steps.meant == 0 || micro_steps.done == 0) return text;
  absl::StrAppend(&text, " (in ", micro_steps.meant - micro_steps.done, " of ", micro_steps.meant,
                  " micro-steps)");
  return text;
}

}  // namespace weft::runtime
