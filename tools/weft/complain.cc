#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <system_error>

#include "tools/weft/commands.h"
#include "tools/weft/visible.h"

namespace weft::tool {

int Complain(const std::string& sentence, int exit_code, int error_fd) {
  std::string line = sentence;
  std::replace(line.begin(), line.end(), '\n', ' ');
  // The parser's messages end with one, Weft's do not; "..." marks a text that was cut.
  if (line.ends_with('.') && !line.ends_with("..")) line.pop_back();
  line = Visible(line);
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

std::string SentenceOf(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr) {
    return "there is not enough memory";
  }
  if (dynamic_cast<const std::system_error*>(&error) != nullptr) {
    return std::string("the system has no more threads or other resources: ") + error.what();
  }
  return std::string("internal error: ") + error.what();
}

}  // namespace weft::tool
