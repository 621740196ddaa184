// What NCCL's plug-in interfaces have in common, in declarations of our own: the layouts are
// NCCL 2.28.9's, its headers are not needed. Enumerations cross as int, as the C ABI has them.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace weft::nccl_plugin {

// Of ncclResult_t. Nothing else is ever answered: the profiler's results are not looked at, and an
// error of the tuner fails the collective.
inline constexpr int kSuccess = 0;

// printf-like; `file` and `line` are those of the caller.
using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;
inline constexpr unsigned long kLogInit = 0x1;
inline constexpr unsigned long kLogTuning = 0x40;
inline constexpr unsigned long kLogProfile = 0x4000;

// Runs `body` where NCCL's C frames lie below: nothing may be thrown into them.
template <typename Body>
int Guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
  } catch (...) {  // out of memory: the plug-in then has no opinion, or one event less
  }
  return kSuccess;
}

}  // namespace weft::nccl_plugin
