// The commands of the tool. Each prints its results to stdout and returns the exit code: 0, 1 when
// the work itself failed or was found wrong, 2 for bad input, of which nothing was changed.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/weft/options.h"

namespace weft::tool {

inline constexpr int kFailed = 1;
inline constexpr int kBadInput = 2;

int PlanCommand(const Options& options);
// A table, or with options.preset that one as a topology file.
int PresetsCommand(const Options& options);
// `arguments` are those of the whole command line, for the processes of a gloo run.
int RunCommand(const Options& options, const std::vector<std::string>& arguments);
int ProfileCommand(const Options& options, const std::vector<std::string>& arguments);

// One line "weft: ..." on stderr, or without "weft: " on `error_fd` where that is not -1, for the
// process that started this one. Returns `exit_code`.
int Complain(const std::string& sentence, int exit_code, int error_fd = -1);

// What an exception that nothing else has caught means to a user.
std::string SentenceOf(const std::exception& error);

}  // namespace weft::tool
