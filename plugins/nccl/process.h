// What the plug-ins ask of their process. They see nothing of Weft, hence not its base/.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace weft::nccl_plugin {

// Empty where the variable is not set.
std::string Environment(const char* name);

// CLOCK_MONOTONIC, the clock of Weft's traces.
std::int64_t NowNs();

pid_t ProcessId();

// The contents of a file of at most `limit` bytes; nothing where it cannot be read or is larger.
std::optional<std::string> ReadFile(const std::string& path, std::size_t limit);

}  // namespace weft::nccl_plugin
