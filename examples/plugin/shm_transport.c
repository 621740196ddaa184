/* A transport for Weft in a library of its own: ranks of one machine, as threads or processes, over
 * memory that they map from a file in the store. Every member brings a piece to its slot, all meet,
 * whoever receives reads the slots, all meet again. It shows the ABI and is not fast: at most 16
 * ranks and 64 communicators, and a process that dies in the middle is noticed at the deadline,
 * unless it held the lock. docs/plugins.md says how to build and use it. */
#include <stdlib.h>
#include <string.h>

#include "plugin/half.h"
#include "plugin/world.h"

#define RETURN_IF_FAILED(call)                  \
  do {                                          \
    const weftResult_t result_ = (call);        \
    if (result_ != weftSuccess) return result_; \
  } while (0)

static int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
static size_t BytesOf(int32_t dtype) { return dtype == WEFT_F32 ? 4 : 2; }

static float Load(const char* at, int32_t dtype, int64_t i) {
  if (dtype == WEFT_F32) return ((const float*)at)[i];
  const uint16_t half = ((const uint16_t*)at)[i];
  return dtype == WEFT_BF16 ? FromBf16(half) : FromF16(half);
}

static void Store(char* at, int32_t dtype, int64_t i, float value) {
  if (dtype == WEFT_F32) {
    ((float*)at)[i] = value;
  } else {
    ((uint16_t*)at)[i] = dtype == WEFT_BF16 ? ToBf16(value) : ToF16(value);
  }
}

/* All slots' elements into `to`, in rank order. */
static void Reduce(const SharedGroup* group, const weftPluginOperation_t* op, int64_t count,
                   char* to) {
  for (int64_t i = 0; i < count; ++i) {
    float value = Load(group->slots[0], op->dtype, i);
    for (int32_t rank = 1; rank < group->size; ++rank) {
      const float next = Load(group->slots[rank], op->dtype, i);
      if (op->reduction == WEFT_PLUGIN_SUM) {
        value += next;
      } else if (isnan(next) || next > value) { /* a NaN stays: nothing is larger */
        value = next;
      }
    }
    Store(to, op->dtype, i, value);
  }
}

/* `count` elements from all to `to` of the members that have one; others pass NULL. */
static weftResult_t ReduceTo(Group* group, const weftPluginOperation_t* op, const char* from,
                             int64_t count, char* to, weftPluginError_t* error) {
  const size_t unit = BytesOf(op->dtype);
  const int64_t most = (int64_t)(kChunk / unit);
  for (int64_t at = 0; at < count; at += most) {
    const int64_t part = Least(most, count - at);
    memcpy(group->shared->slots[group->rank], from + (size_t)at * unit, (size_t)part * unit);
    RETURN_IF_FAILED(Meet(group, op->description, error));
    if (to != NULL) Reduce(group->shared, op, part, to + (size_t)at * unit);
    RETURN_IF_FAILED(Meet(group, op->description, error));
  }
  return weftSuccess;
}

/* `bytes` bytes of member `source` to `to` of the members that have one. */
static weftResult_t CopyTo(Group* group, const weftPluginOperation_t* op, int source,
                           const char* from, int64_t bytes, char* to, weftPluginError_t* error) {
  for (int64_t at = 0; at < bytes; at += kChunk) {
    const size_t part = (size_t)Least(kChunk, bytes - at);
    if (group->rank == source) memcpy(group->shared->slots[source], from + at, part);
    RETURN_IF_FAILED(Meet(group, op->description, error));
    if (to != NULL) memcpy(to + at, group->shared->slots[source], part);
    RETURN_IF_FAILED(Meet(group, op->description, error));
  }
  return weftSuccess;
}

static weftResult_t RunOne(Group* group, const weftPluginOperation_t* op,
                           weftPluginError_t* error) {
  const int rank = group->rank, is_root = rank == op->root;
  const char* const send = op->send;
  char* const recv = op->recv;
  int64_t at = 0; /* of the part of `peer`, in units of `counts` */
  switch (op->kind) {
    case WEFT_PLUGIN_ALL_REDUCE:
      return ReduceTo(group, op, send, op->counts[0], recv, error);
    case WEFT_PLUGIN_REDUCE:
      return ReduceTo(group, op, send, op->counts[0], is_root ? recv : NULL, error);
    case WEFT_PLUGIN_BROADCAST:
      return CopyTo(group, op, op->root, recv, op->counts[0], is_root ? NULL : recv, error);
    case WEFT_PLUGIN_REDUCE_SCATTER:
      for (int peer = 0; peer < group->shared->size; at += op->counts[peer++]) {
        RETURN_IF_FAILED(ReduceTo(group, op, send + (size_t)at * BytesOf(op->dtype),
                                  op->counts[peer], peer == rank ? recv : NULL, error));
      }
      return weftSuccess;
    case WEFT_PLUGIN_ALL_GATHER:
    case WEFT_PLUGIN_GATHER:
      for (int peer = 0; peer < group->shared->size; at += op->counts[peer++]) {
        const int receives = op->kind == WEFT_PLUGIN_ALL_GATHER || is_root;
        RETURN_IF_FAILED(CopyTo(group, op, peer, send, op->counts[peer],
                                receives && recv != NULL ? recv + at : NULL, error));
      }
      return weftSuccess;
    case WEFT_PLUGIN_SCATTER:
      for (int peer = 0; peer < group->shared->size; at += op->counts[peer++]) {
        RETURN_IF_FAILED(CopyTo(group, op, op->root, is_root ? send + at : NULL, op->counts[peer],
                                peer == rank ? recv : NULL, error));
      }
      return weftSuccess;
    case WEFT_PLUGIN_BARRIER:
      return Meet(group, op->description, error);
    default:
      return weftUnsupported;
  }
}

static weftResult_t Create(const weftPluginTransportConfig_t* config, void** transport,
                           weftPluginError_t* error) {
  World* const world = calloc(1, sizeof(*world));
  if (world == NULL) return weftOutOfMemory;
  const weftResult_t result = OpenWorld(config, world, error);
  if (result != weftSuccess) {
    free(world);
    return result;
  }
  *transport = world;
  return weftSuccess;
}

static void Destroy(void* transport) {
  CloseWorld(transport);
  free(transport);
}

static void Abort(void* transport, weftResult_t result, const char* cause) {
  EndRank(transport, result, cause);
}

static weftResult_t GetAsyncError(void* transport, weftPluginError_t* error) {
  return FirstEnd(transport, error);
}

static weftResult_t CommCreate(void* transport, const char* name, const int32_t* world_ranks,
                               int32_t count, void** comm, weftPluginError_t* error) {
  Group* const group = calloc(1, sizeof(*group));
  if (group == NULL) return weftOutOfMemory;
  const weftResult_t result = OpenGroup(transport, name, world_ranks, count, group, error);
  if (result != weftSuccess) {
    free(group);
    return result;
  }
  *comm = group;
  return weftSuccess;
}

static void CommDestroy(void* comm) {
  EndGroup(comm, weftRemoteError, "has left");
  free(comm);
}

static void CommAbort(void* comm, weftResult_t result, const char* cause) {
  EndGroup(comm, result, cause);
}

static weftResult_t Run(void* comm, const weftPluginOperation_t* operations, int32_t count,
                        weftPluginError_t* error) {
  for (int32_t i = 0; i < count; ++i) {
    const weftResult_t result = RunOne(comm, &operations[i], error);
    if (result == weftSuccess) continue;
    EndGroup(comm, result, error->sentence);
    return result;
  }
  return weftSuccess;
}

__attribute__((visibility("default"))) extern const weftTransportPlugin_v1_t weftTransport_v1;
const weftTransportPlugin_v1_t weftTransport_v1 = {
    sizeof(weftTransportPlugin_v1_t),
    WEFT_CONFIG_MAGIC,
    1,
    "shm",
    Create,
    Destroy,
    Abort,
    GetAsyncError,
    CommCreate,
    CommDestroy,
    CommAbort,
    Run,
};
