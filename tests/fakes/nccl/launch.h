// Turns the calls of a group on one communicator into work of its device.
#pragma once

#include <nccl.h>

#include <vector>

#include "tests/fakes/nccl/call.h"
#include "tests/fakes/nccl/comm.h"

namespace weft::fakes::nccl {

// Of one communicator in one group, in program order; not empty, and counts are not zero.
// Collectives become one kernel; each send and receive a kernel of its two ends, all of a group in
// an order that is the same everywhere (NCCL runs them at once). The kernel is in the stream of the
// first call and joins those of the others before and after, and follows the last kernel of the
// communicator.
ncclResult_t Launch(ncclComm& comm, const std::vector<Call>& calls);

}  // namespace weft::fakes::nccl
