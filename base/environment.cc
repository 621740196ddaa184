#include "base/environment.h"

#include <cstdlib>
#include <fstream>

namespace weft::base {

std::optional<std::string> EnvironmentVariable(const std::string& name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing of Weft writes the environment.
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::optional<std::string> EnvironmentVariableAtStart(const std::string& name) {
  // The kernel keeps what the program was started with.
  std::ifstream start("/proc/self/environ", std::ios::binary);
  std::string entry;
  while (std::getline(start, entry, '\0')) {
    if (entry.compare(0, name.size() + 1, name + "=") == 0) return entry.substr(name.size() + 1);
  }
  return std::nullopt;
}

}  // namespace weft::base
