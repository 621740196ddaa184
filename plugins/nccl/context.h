/* What the calling thread is working for, told by whoever calls NCCL to the profiler that NCCL
 * loads.
 *
 * It lives in a library of its own, libweft-nccl-context.so, because NCCL opens its plug-ins with
 * RTLD_LOCAL: they share no variable with the program but those of a library that both name as
 * needed. C99, no dependencies. Every function may be called from any thread, never blocks and
 * never fails. */
#ifndef WEFT_PLUGINS_NCCL_CONTEXT_H_
#define WEFT_PLUGINS_NCCL_CONTEXT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_nccl_context {
  int64_t step;   /* of the optimizer */
  int32_t rank;   /* in the world, not in a communicator; -1: not known */
  int32_t op;     /* index in the plan */
  int32_t matrix; /* index in the plan; -1: none, or several */
  const char*
      name; /* of the matrix; NULL: none. Read while NCCL runs in this thread, never after */
};

/* Sets what this thread works for; NULL: nothing. The struct is copied, its name is not: it must
 * stay readable until the next call on this thread. */
__attribute__((visibility("default"))) void weft_nccl_context_set(
    const struct weft_nccl_context* context);

/* Copies this thread's context; 1 if there is one, otherwise 0 and `context` is left alone. */
__attribute__((visibility("default"))) int weft_nccl_context_get(struct weft_nccl_context* context);

/* Asks the profiler to write what has completed so far. A communicator does it when NCCL next
 * starts an event of a call or a collective on it, on the thread of that event. */
__attribute__((visibility("default"))) void weft_nccl_profile_flush(void);

/* How often that was asked: the profiler's side. */
__attribute__((visibility("default"))) uint64_t weft_nccl_profile_flushes(void);

#ifdef __cplusplus
}
#endif

#endif
