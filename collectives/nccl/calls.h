// An operation as calls of NCCL.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "absl/status/status.h"
#include "collectives/operation.h"

namespace weft::collectives::nccl {

struct CallTarget {
  ncclComm_t comm = nullptr;
  int rank = 0;
  int size = 1;
  cudaStream_t stream = nullptr;
  // One float of the device's that nobody else uses: a barrier is the sum of them.
  void* scratch = nullptr;
};

// Whether no member has anything to send or to wait for.
bool MovesNothing(const Operation& op);

// Enqueues the operation and those joined to it, as one group of NCCL's where it takes more than
// one call. With a non-blocking communicator the kernel need not be on the stream yet.
absl::Status Call(const Operation& op, const CallTarget& target);

}  // namespace weft::collectives::nccl
