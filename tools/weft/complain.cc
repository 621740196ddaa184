#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tools/weft/commands.h"

namespace weft::tool {

int Complain(const std::string& sentence, int exit_code, int error_fd) {
  std::string line;
  for (const char c : sentence) line += c == '\n' ? ' ' : c;
  // The parser's messages end with one, Weft's do not; "..." marks a text that was cut.
  if (line.ends_with('.') && !line.ends_with("..")) line.pop_back();
  if (error_fd < 0) {
    std::fprintf(stderr, "weft: %s\n", line.c_str());
    return exit_code;
  }
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(error_fd, line.data() + done, line.size() - done);
    if (written < 0 && errno != EINTR) break;
    if (written > 0) done += static_cast<std::size_t>(written);
  }
  return exit_code;
}

}  // namespace weft::tool
