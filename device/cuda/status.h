// CUDA's errors as statuses.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace weft::device {

// Of `call`, for `who`: "cudaMemcpyAsync on stream intra of CUDA device 0 failed: out of memory".
// OK for cudaSuccess. ResourceExhausted for want of memory, otherwise Internal. The thread's error
// is cleared, as far as the runtime lets it be.
absl::Status CudaStatus(cudaError_t error, std::string_view call, std::string_view who);

}  // namespace weft::device
