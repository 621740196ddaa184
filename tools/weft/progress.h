// A bar on the terminal; silent when stderr is not one.
#pragma once

#include <cstdint>
#include <string>

namespace weft::tool {

class Progress {
 public:
  Progress(std::string what, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Advance(std::int64_t done);

 private:
  const std::string what_;
  const std::int64_t total_;
  const bool visible_;
};

}  // namespace weft::tool
