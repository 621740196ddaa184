#include "base/annotate.h"

#include <pthread.h>

namespace weft::base {

void NameThread(const std::string& name) {
  constexpr std::size_t kKept = 15;  // by the kernel, without the terminating zero
  (void)pthread_setname_np(pthread_self(), name.substr(0, kKept).c_str());
  if constexpr (kHasNvtx)
    if (ToolAttached()) annotate::NameThread(name);
}

}  // namespace weft::base
