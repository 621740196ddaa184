// std::string_view at Abseil's borders, whose own string_view is another type.
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace weft::base {

inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace weft::base
