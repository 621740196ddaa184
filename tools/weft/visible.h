// Text that comes from files and command lines, made safe for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace weft::tool {

// Control characters, what reverses the direction of text, and bytes that are not UTF-8 become
// "\u001b" or "\xff". Everything else stays, so that a second time changes nothing.
std::string Visible(std::string_view text);

}  // namespace weft::tool
