#include "collectives/nccl/launch_order.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace weft::collectives::nccl {
namespace {

constexpr int kFirstNccl = 22600;
constexpr int kFirstCuda = 12030;  // before it, ordered launches do not overlap

std::string CudaVersion(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// Empty when it holds.
std::string WhyNotImplicit(const LaunchFacts& facts) {
  if (facts.nccl < kFirstNccl) {
    return absl::StrCat("NCCL ", facts.nccl / 10000, ".", facts.nccl / 100 % 100,
                        " does not order launches, 2.26 does");
  }
  if (facts.runtime < kFirstCuda || facts.driver < kFirstCuda) {
    return absl::StrCat("ordered launches overlap from CUDA 12.3 on, and the runtime is ",
                        CudaVersion(facts.runtime), ", the driver ", CudaVersion(facts.driver));
  }
  // As NCCL reads numbers.
  if (!facts.variable || std::strtoll(facts.variable->c_str(), nullptr, 0) == 0) {
    return "NCCL_LAUNCH_ORDER_IMPLICIT=1 was not in the environment when the program started";
  }
  return "";
}

}  // namespace

absl::StatusOr<ChosenOrder> ChooseLaunchOrder(LaunchOrder asked, const LaunchFacts& facts) {
  const std::string why_not = WhyNotImplicit(facts);
  if (asked == LaunchOrder::kSerialized) {
    return ChosenOrder{true, false, "Collectives run one after another, as asked for."};
  }
  if (why_not.empty()) {
    return ChosenOrder{false, false,
                       "NCCL orders the launches of collectives, which may overlap "
                       "(NCCL_LAUNCH_ORDER_IMPLICIT=1)."};
  }
  if (asked == LaunchOrder::kImplicit) {
    return absl::FailedPreconditionError(
        absl::StrCat("collectives cannot be ordered by NCCL: ", why_not));
  }
  const bool variable_helps =
      facts.nccl >= kFirstNccl && facts.runtime >= kFirstCuda && facts.driver >= kFirstCuda;
  return ChosenOrder{true, true,
                     absl::StrCat("Collectives run one after another because ", why_not,
                                  variable_helps ? "; with it they may overlap." : ".")};
}

}  // namespace weft::collectives::nccl
