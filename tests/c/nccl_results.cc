// The numbers that both libraries promise, by NCCL's own header.
#include <nccl.h>

#include "weft/c/types.h"

#define SAME(name) \
  static_assert(static_cast<int>(nccl##name) == static_cast<int>(weft##name), #name)
SAME(Success);
SAME(UnhandledCudaError);
SAME(SystemError);
SAME(InternalError);
SAME(InvalidArgument);
SAME(InvalidUsage);
SAME(RemoteError);
SAME(InProgress);
static_assert(static_cast<int>(ncclNumResults) == static_cast<int>(weftInProgress) + 1);
