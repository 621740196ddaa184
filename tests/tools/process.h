// Runs a program to its end, or watches it while it runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace weft::testing {

struct Finished {
  int exit_code = -1;  // 128 + signal where one ended it
  std::string out;
  std::string err;
};

// `environment` entries, NAME=VALUE, are added to this process's.
Finished RunProgram(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment = {});

// A started program; its output is discarded. Killed on destruction when it still runs.
class Running {
 public:
  Running(const std::vector<std::string>& arguments, const std::vector<std::string>& environment);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void Signal(int number);
  // Process ids of its children now, oldest first.
  std::vector<pid_t> Children() const;
  int Wait();

 private:
  pid_t pid_;
};

}  // namespace weft::testing
