// Starts the ranks of a gloo run as processes of this machine and watches them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft::tool {

struct LaunchOutcome {
  int exit_code = 0;
  std::string error;  // of the rank that failed first, empty if none did
};

// Runs this program `world` times with `arguments` (without the program's name) and --rank,
// --world,
// --store of a fresh directory, --error-fd. Returns when all have ended; once one fails the others
// are killed. SIGINT, SIGTERM and SIGHUP end the ranks and give exit code 128 + signal. The ranks
// do not outlive this process, the directory does not outlive the call. Call it with one thread.
absl::StatusOr<LaunchOutcome> LaunchRanks(const std::vector<std::string>& arguments, int world);

}  // namespace weft::tool
