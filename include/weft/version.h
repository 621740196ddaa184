// Which Weft this is.
#pragma once

#include <string_view>

#pragma GCC visibility push(default)
namespace weft {

// "0.1.0", of the library that is linked.
std::string_view Version();

}  // namespace weft
#pragma GCC visibility pop
