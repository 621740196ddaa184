// The one summation that all transports share, so that they give the same bits.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "weft/communicator.h"
#include "weft/dtype.h"

namespace weft::collectives {

// to[i] = op over k of sources[k][i], formed in fp32 in the order of `sources` and rounded once.
// `count` elements; `to` may be one of the sources, no other overlap. A NaN in any source gives
// NaN, also for kMax. At least one source.
void ReduceSources(absl::Span<const void* const> sources, void* to, std::int64_t count, DType dtype,
                   ReduceOp op);

}  // namespace weft::collectives
