// The files of the repository, for tests that hold them against each other.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace weft::testing {

inline const std::filesystem::path kRoot = WEFT_SOURCE_DIR;

inline std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace weft::testing
