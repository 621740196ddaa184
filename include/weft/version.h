// Which Weft this is.
#pragma once

#include <string_view>

namespace [[gnu::visibility("default")]] weft {

// "0.1.0", of the library that is linked.
std::string_view Version();

}  // namespace weft
