// Version, words for results, last errors, texts.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "base/c_result.h"
#include "base/status_macros.h"
#include "c/handle.h"
#include "weft/c/weft.h"
#include "weft/version.h"

namespace {

using weft::c::CheckPointer;
using weft::c::Guard;

// "0.1.0" as 100.
int VersionNumber() {
  int parts[3] = {0, 0, 0};
  const std::string text(weft::Version());
  std::sscanf(text.c_str(), "%d.%d.%d", &parts[0], &parts[1], &parts[2]);
  return 10000 * parts[0] + 100 * parts[1] + parts[2];
}

}  // namespace

weftResult_t weftGetVersion(int* version) {
  return Guard(nullptr, [&]() -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(version, "version"));
    *version = VersionNumber();
    return absl::OkStatus();
  });
}

const char* weftGetErrorString(weftResult_t result) { return weft::base::Words(result); }

const char* weftGetLastError(const void* handle) {
  thread_local std::string text;
  try {
    const weft::c::Handle* const known = weft::c::AnyHandle(handle);
    text = known != nullptr ? known->last_error() : weft::c::ThreadError();
    return text.c_str();
  } catch (...) {
    return "the host is out of memory";
  }
}

void weftFree(char* text) { std::free(text); }
