/* A transport from outside Weft's tree: a library that exports one constant,
 *
 *     const weftTransportPlugin_v1_t weftTransport_v1 = {sizeof(weftTransportPlugin_v1_t), ...};
 *
 * It moves memory of the host. Weft finds it by the rules that NCCL has for its plug-ins, with the
 * environment variable WEFT_TRANSPORT_PLUGIN: not set, libweft-transport.so; a path or a name
 * lib*.so, that file; any other word w, libweft-transport-w.so; "none", nothing; "STATIC_PLUGIN",
 * the program.
 *
 * What Weft has checked before a call: ranks, counts, roots and pointers. What it does: one
 * operation after another on each communicator, in an order that is the same on all members;
 * several communicators at once, from threads of its own. Structs that Weft gives have a `size`:
 * they grow at their end. Texts and arrays of a call are valid until it returns. */
#ifndef WEFT_C_PLUGIN_V1_H_
#define WEFT_C_PLUGIN_V1_H_

#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_TRANSPORT_PLUGIN_V1 "weftTransport_v1"

/* Why a call has failed. The plug-in fills in what it knows; the rest is as it was given. */
typedef struct {
  size_t size;
  int32_t rank; /* world rank at fault; -1: nobody in particular */
  int32_t reserved;
  char sentence[496]; /* ends with a zero; "waited 2 s for rank 3" */
} weftPluginError_t;

typedef struct {
  size_t size;
  int32_t rank, world_size;
  const char* store;       /* a place that all ranks share: the user's, as it was given */
  double deadline_seconds; /* longest wait for a peer */
} weftPluginTransportConfig_t;

enum {
  WEFT_PLUGIN_ALL_REDUCE = 0,
  WEFT_PLUGIN_REDUCE = 1,
  WEFT_PLUGIN_BROADCAST = 2,
  WEFT_PLUGIN_ALL_GATHER = 3,
  WEFT_PLUGIN_REDUCE_SCATTER = 4,
  WEFT_PLUGIN_GATHER = 5,
  WEFT_PLUGIN_SCATTER = 6,
  WEFT_PLUGIN_BARRIER = 7
};
enum { WEFT_PLUGIN_SUM = 0, WEFT_PLUGIN_MAX = 1 };

/* weft/communicator.h has each operation's contract: which of send and recv count on which rank,
 * and where they may be the same memory. Sums are formed in fp32 in ascending rank order and
 * rounded once; a NaN gives NaN, also for the maximum. */
typedef struct {
  size_t size;
  int32_t kind;             /* WEFT_PLUGIN_* */
  int32_t dtype, reduction; /* of kinds that reduce: WEFT_F32..., WEFT_PLUGIN_SUM or _MAX */
  int32_t root;             /* rank in the group */
  const void* send;
  void* recv; /* broadcast: the buffer, on every rank */
  /* Of kinds that reduce elements, of others bytes. all-gather, reduce-scatter, gather and scatter:
   * one count per rank, parts packed in rank order; barrier: none; others: one. */
  const int64_t* counts;
  int64_t count_count;
  const char* description; /* "reduce of matrix 'blk.0.wq' (stage 'reduced')", for sentences */
} weftPluginOperation_t;

typedef struct {
  size_t size;      /* sizeof the struct */
  uint32_t magic;   /* WEFT_CONFIG_MAGIC */
  uint32_t version; /* 1 */
  const char* name; /* "shm": Transport::kind() */

  /* Collective over the world, blocking until all have come or the deadline. */
  weftResult_t (*create)(const weftPluginTransportConfig_t* config, void** transport,
                         weftPluginError_t* error);
  /* After every communicator's end. Peers that still need this rank fail with weftRemoteError. */
  void (*destroy)(void* transport);
  /* Ends every operation of this rank soon, now and from now on, and tells the peers, whose
   * operations end with `result` and a sentence that names this rank and repeats `cause`. The first
   * abort counts. Any thread, also while operations run; does not wait for a peer. */
  void (*abort)(void* transport, weftResult_t result, const char* cause);
  /* weftSuccess, or the first failure of this rank or a peer that is known here. Any thread. */
  weftResult_t (*getAsyncError)(void* transport, weftPluginError_t* error);

  /* Collective over the group, blocking as `create`: `world_ranks` ascending, this rank among them;
   * `name` is the same on all members and new. One at a time on each transport. */
  weftResult_t (*commCreate)(void* transport, const char* name, const int32_t* world_ranks,
                             int32_t count, void** comm, weftPluginError_t* error);
  void (*commDestroy)(void* comm);
  /* As `abort`, of one communicator. */
  void (*commAbort)(void* comm, weftResult_t result, const char* cause);
  /* Runs operations, which begin together and may run one after another: returns when this rank's
   * buffers may be used again. weftTimeout at the deadline, weftRemoteError for a peer that is
   * gone, the cause of an abort; whatever it is, the communicator is dead on all members from then
   * on. */
  weftResult_t (*run)(void* comm, const weftPluginOperation_t* operations, int32_t count,
                      weftPluginError_t* error);
} weftTransportPlugin_v1_t;

#ifdef __cplusplus
}
#endif

#endif /* WEFT_C_PLUGIN_V1_H_ */
