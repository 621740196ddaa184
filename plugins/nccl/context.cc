#include "plugins/nccl/context.h"

#include <atomic>

namespace {

thread_local bool is_set = false;
thread_local weft_nccl_context current = {};
std::atomic<std::uint64_t> flushes{0};

}  // namespace

extern "C" {

void weft_nccl_context_set(const struct weft_nccl_context* context) {
  is_set = context != nullptr;
  if (is_set) current = *context;
}

int weft_nccl_context_get(struct weft_nccl_context* context) {
  if (!is_set || context == nullptr) return 0;
  *context = current;
  return 1;
}

void weft_nccl_profile_flush(void) { flushes.fetch_add(1, std::memory_order_relaxed); }

std::uint64_t weft_nccl_profile_flushes(void) { return flushes.load(std::memory_order_relaxed); }

}  // extern "C"
