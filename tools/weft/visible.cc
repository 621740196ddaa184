#include "tools/weft/visible.h"

#include <cstdint>
#include <cstdio>

namespace weft::tool {
namespace {

struct Decoded {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0 where the text does not begin with a character in UTF-8
};

Decoded Decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  static constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

bool IsHidden(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) ||  // C0, DEL, C1
         code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) ||  // separators of lines, directions
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string Visible(std::string_view text) {
  std::string visible;
  char escape[16];
  while (!text.empty()) {
    const Decoded next = Decode(text);
    if (next.bytes == 0) {
      std::snprintf(escape, sizeof(escape), "\\x%02x", static_cast<unsigned char>(text[0]));
      visible += escape;
      text.remove_prefix(1);
      continue;
    }
    if (IsHidden(next.code)) {
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(next.code));
      visible += escape;
    } else {
      visible += text.substr(0, next.bytes);
    }
    text.remove_prefix(next.bytes);
  }
  return visible;
}

}  // namespace weft::tool
