#include "base/log.h"

#include <cstdio>
#include <mutex>
#include <optional>
#include <utility>

#include "base/environment.h"

namespace weft {
namespace {

struct Log {
  std::mutex mutex;
  LogSink sink;
};

Log& TheLog() {
  static Log* const log = new Log;
  return *log;
}

bool Shown(LogLevel level) {
  const std::optional<std::string> least = base::EnvironmentVariable("WEFT_LOG");
  if (least == "none") return false;
  return level == LogLevel::kWarning || least == "info";
}

}  // namespace

void SetLogSink(LogSink sink) {
  const std::lock_guard<std::mutex> lock(TheLog().mutex);
  TheLog().sink = std::move(sink);
}

void base::Log(LogLevel level, const std::string& sentence) {
  weft::Log& log = TheLog();
  const std::lock_guard<std::mutex> lock(log.mutex);
  if (log.sink) {
    log.sink(level, sentence);
  } else if (Shown(level)) {
    std::fprintf(stderr, "weft: %s: %s\n", level == LogLevel::kWarning ? "warning" : "info",
                 sentence.c_str());
  }
}

}  // namespace weft
