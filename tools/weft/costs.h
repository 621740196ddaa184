// The measured costs that a plan is made with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/weft/options.h"
#include "weft/cost_model.h"
#include "weft/runtime.h"

namespace weft::tool {

struct PlanCosts {
  std::shared_ptr<const CostModel> model;
  BatchTables tables;
  // Why the profile does not fit here although it is used; empty if it does.
  std::string mismatch;
};

// From --profile, else the analytic model. A profile that is stale or foreign is refused with the
// reason, or used with
// --any-profile. What runs the ranks is not known to a plan and not compared.
absl::StatusOr<PlanCosts> CostsFor(const Options& options, const std::vector<MatrixSpec>& specs,
                                   const Topology& topology);

}  // namespace weft::tool
