// Which of the two ways keeps collectives of several communicators on one GPU apart.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "weft/transport.h"

namespace weft::collectives::nccl {

struct LaunchFacts {
  // NCCL_LAUNCH_ORDER_IMPLICIT when the process started: NCCL reads it once, perhaps before Weft is
  // there, so that what has been set since may not count.
  std::optional<std::string> variable;
  int nccl = 0;     // as ncclGetVersion() says: 22809
  int runtime = 0;  // as CUDA says: 13000
  int driver = 0;
};

struct ChosenOrder {
  bool serialized = true;
  bool held_back = false;  // serialized without having been asked for
  std::string note;        // what was chosen and why, one sentence
};

// FailedPrecondition where kImplicit is asked for and would not hold.
absl::StatusOr<ChosenOrder> ChooseLaunchOrder(LaunchOrder asked, const LaunchFacts& facts);

}  // namespace weft::collectives::nccl
