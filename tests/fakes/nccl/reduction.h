// Sums as a ring forms them: the result goes from rank to rank and is rounded to the element type
// at every hop.
#pragma once

#include <nccl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/fakes/fake.h"

namespace weft::fakes::nccl {

// 0 for what is no type.
std::size_t SizeOf(ncclDataType_t type);
const char* Name(ncclDataType_t type);
bool CanReduce(ncclDataType_t type);  // all but the 8 bit floating-point types

// A reduction as one member gave it.
struct Reduction {
  ncclRedOp_t op = ncclSum;  // of a created one ncclSum, and `scaled`
  // Before the sum the member's elements are multiplied by *scalar, of the element type. The value
  // is in `immediate` or, read when the collective runs, at `device_scalar`.
  bool scaled = false;
  std::array<std::byte, 8> immediate{};
  const void* device_scalar = nullptr;
};

// The average is a sum of elements that were multiplied by 1 / ranks in the element type before.
// Of floating-point types only.
Reduction Average(ncclDataType_t type, int ranks);

// to[i] = the reduction of from[r][i] over all ranks, i < count. kRing: begins with rank `first`
// and goes up, wrapping around; kAscending: in the order of ranks, floating point in fp32 (fp64 for
// fp64), rounded once. `to` may be one of `from`. `reductions` by rank; their ops are equal.
void Reduce(ncclDataType_t type, SumOrder order, int first, std::size_t count,
            const std::vector<const void*>& from, const std::vector<Reduction>& reductions,
            void* to);

}  // namespace weft::fakes::nccl
