// Which running kernel this process is on.
#pragma once

#include <cstdint>

namespace weft::base {

// Equal for processes that share a monotonic clock: a digest of the kernel's boot id. 0 where that
// cannot be read.
std::int64_t HostId();

}  // namespace weft::base
