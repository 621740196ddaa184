// What Weft says beside statuses: few sentences, most at Commit().
#pragma once

#include <functional>
#include <string_view>

#pragma GCC visibility push(default)
namespace weft {

enum class LogLevel { kInfo, kWarning };

// Receives whole sentences without a line end, from any thread, one call at a time.
using LogSink = std::function<void(LogLevel level, std::string_view sentence)>;

// Where they go from now on, process-wide; null: to standard error as "weft: warning: ...", those
// from the level on that the environment variable WEFT_LOG names ("info", "warning", "none";
// "warning" where it is not set). A sink gets all of them. Thread-safe; not from inside a sink.
void SetLogSink(LogSink sink);

}  // namespace weft
#pragma GCC visibility pop
