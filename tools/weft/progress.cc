#include "tools/weft/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace weft::tool {

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), visible_(::isatty(STDERR_FILENO) == 1) {
  Advance(0);
}

Progress::~Progress() {
  if (visible_) std::fputs("\r\x1b[K", stderr);
}

void Progress::Advance(std::int64_t done) {
  if (!visible_ || total_ == 0) return;
  constexpr int kWidth = 40;
  const int filled = static_cast<int>(done * kWidth / total_);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  std::fprintf(stderr, "\r%s [%s] %lld/%lld", what_.c_str(), bar.c_str(),
               static_cast<long long>(done), static_cast<long long>(total_));
  std::fflush(stderr);
}

}  // namespace weft::tool
