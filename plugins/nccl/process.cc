#include "plugins/nccl/process.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace weft::nccl_plugin {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

std::int64_t NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

pid_t ProcessId() { return ::getpid(); }

std::optional<std::string> ReadFile(const std::string& path, std::size_t limit) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return std::nullopt;
  std::string text(limit + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (text.size() > limit || std::ferror(file.get()) != 0) return std::nullopt;
  return text;
}

}  // namespace weft::nccl_plugin
