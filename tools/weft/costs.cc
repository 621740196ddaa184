#include "tools/weft/costs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tools/weft/status_macros.h"
#include "weft/cost_profile.h"
#include "weft/device.h"
#include "weft/measure.h"
#include "weft/work.h"

namespace weft::tool {

absl::StatusOr<PlanCosts> CostsFor(const Options& options, const std::vector<MatrixSpec>& specs,
                                   const Topology& topology) {
  WEFT_ASSIGN_OR_RETURN(const auto work, OwnedWorkOf(specs));
  if (options.profile.empty()) {
    auto model = std::make_shared<const CostModel>(topology);
    BatchTables tables = MakeBatchTables(*model, work);
    return PlanCosts{std::move(model), std::move(tables), ""};
  }
  WEFT_ASSIGN_OR_RETURN(const CostProfile profile, ReadCostProfile(options.profile));
  WEFT_ASSIGN_OR_RETURN(const auto device, CreateHostDevice());
  ProfileFingerprint here = FingerprintOf(*device, "", topology);
  here.threads = 0;
  const absl::Status fits = CheckProfile(profile, here);
  std::string mismatch;
  if (!fits.ok()) {
    mismatch = std::string(absl::StripSuffix(fits.message(), "."));
    if (!options.any_profile) {
      return absl::InvalidArgumentError(absl::StrCat("--profile ", options.profile, ": ", mismatch,
                                                     "; --any-profile uses it all the same"));
    }
  }
  auto model = std::make_shared<const CostModel>(profile, topology);
  BatchTables tables = MakeBatchTables(*model, work);
  return PlanCosts{std::move(model), std::move(tables), std::move(mismatch)};
}

}  // namespace weft::tool
