// NCCL's results as statuses.
#pragma once

#include <nccl.h>

#include <string_view>

#include "absl/status/status.h"

namespace weft::collectives::nccl {

// OK for success and for a call that a non-blocking communicator has only begun. Otherwise "NCCL:
// ncclAllReduce failed: remote process exited ... (its last error)": Unavailable where a peer or
// the network is the reason, else Internal.
absl::Status NcclStatus(ncclResult_t result, std::string_view call);

}  // namespace weft::collectives::nccl
