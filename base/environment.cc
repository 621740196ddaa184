#include "base/environment.h"

#include <cstdlib>

namespace weft::base {

std::optional<std::string> EnvironmentVariable(const std::string& name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing of Weft writes the environment.
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

}  // namespace weft::base
