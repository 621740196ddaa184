// What frees memory waits for the whole device.
#pragma once

#include <string>

namespace weft::fakes {

// Blocks the calling thread until everything enqueued on its current device has run; `why` is the
// call. 0, or the cudaError_t of a failed device or a broken deadlock.
int BlockUntilIdle(const std::string& why);

}  // namespace weft::fakes
