// Wall time, for people. Nothing in Weft waits or decides by it.
#pragma once

#include <string>

namespace weft::base {

// "2026-11-30T12:00:00Z".
std::string UtcNow();

}  // namespace weft::base
