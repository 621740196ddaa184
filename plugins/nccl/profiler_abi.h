// NCCL's profiler interface, versions 5 (NCCL 2.28) and 4 (2.27).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "plugins/nccl/abi.h"

namespace weft::nccl_plugin {

// Kinds of events, one bit each; a mask of them says which NCCL delivers.
enum EventBit : int {
  kBitGroup = 1 << 0,
  kBitColl = 1 << 1,
  kBitP2p = 1 << 2,
  kBitProxyOp = 1 << 3,
  kBitKernelCh = 1 << 6,
  kBitGroupApi = 1 << 8,
  kBitCollApi = 1 << 9,
  kBitP2pApi = 1 << 10,
  kBitKernelLaunch = 1 << 11,
};

enum EventState : int {
  kProxyOpInProgress = 19,
  kKernelChStop = 22,
  kGroupStartApiStop = 23,
  kGroupEndApiStart = 24,
};

// Strings are literals of NCCL's, which lives longer than the communicators.
struct CollFields {
  std::uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* datatype;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

struct P2pFields {
  const char* function;
  void* buffer;
  const char* datatype;
  std::size_t count;
  int peer;
  std::uint8_t channels;
};

struct ProxyOpFields {
  pid_t pid;  // of the process that owns the parent, which may be another (PXN)
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};

struct KernelChFields {
  std::uint8_t channel;
  std::uint64_t gpu_ns;  // the GPU's globaltimer at the start
};

struct GroupApiFields {
  bool captured;
  int depth;
};

struct CollApiFields {
  const char* function;
  std::size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool captured;
};

struct P2pApiFields {
  const char* function;
  std::size_t count;
  const char* datatype;
  void* stream;
  bool captured;
};

struct KernelLaunchFields {
  void* stream;
};

struct DescriptorV5 {
  std::uint64_t type;
  void* parent;
  int rank;
  union {
    GroupApiFields group_api;
    CollApiFields coll_api;
    P2pApiFields p2p_api;
    KernelLaunchFields kernel_launch;
    CollFields coll;
    P2pFields p2p;
    ProxyOpFields proxy_op;
    KernelChFields kernel_ch;
    std::byte size[88];  // version 5 ends coll and p2p with a pointer that serves version 4's shim
  };
};

struct DescriptorV4 {
  std::uint8_t type;
  void* parent;
  int rank;
  union {
    CollFields coll;
    P2pFields p2p;
    ProxyOpFields proxy_op;
    KernelChFields kernel_ch;
  };
};

union StateArguments {
  std::size_t proxy_step_bytes;
  int proxy_ctrl_appended;
  void* net_data;
  std::uint64_t gpu_ns;
};

struct ProfilerV5 {
  const char* name;
  int (*init)(void** context, std::uint64_t communicator, int* mask, const char* name, int nodes,
              int ranks, int rank, Logger log);
  int (*start_event)(void* context, void** handle, DescriptorV5* descriptor);
  int (*stop_event)(void* handle);
  int (*record_state)(void* handle, int state, StateArguments* arguments);
  int (*finalize)(void* context);
};

struct ProfilerV4 {
  const char* name;
  int (*init)(void** context, int* mask, const char* name, std::uint64_t communicator, int nodes,
              int ranks, int rank, Logger log);
  int (*start_event)(void* context, void** handle, DescriptorV4* descriptor);
  int (*stop_event)(void* handle);
  int (*record_state)(void* handle, int state, StateArguments* arguments);
  int (*finalize)(void* context);
};

static_assert(sizeof(CollFields) == 80);
static_assert(offsetof(CollFields, function) == 8 && offsetof(CollFields, count) == 32);
static_assert(offsetof(CollFields, root) == 40 && offsetof(CollFields, datatype) == 48);
static_assert(offsetof(CollFields, channels) == 56 && offsetof(CollFields, warps) == 57);
static_assert(offsetof(CollFields, algorithm) == 64 && offsetof(CollFields, protocol) == 72);
static_assert(offsetof(P2pFields, count) == 24 && offsetof(P2pFields, peer) == 32);
static_assert(offsetof(P2pFields, channels) == 36);
static_assert(offsetof(ProxyOpFields, channel) == 4 && offsetof(ProxyOpFields, peer) == 8);
static_assert(offsetof(ProxyOpFields, is_send) == 20);
static_assert(offsetof(KernelChFields, gpu_ns) == 8);
static_assert(offsetof(GroupApiFields, depth) == 4);
static_assert(offsetof(CollApiFields, root) == 24 && offsetof(CollApiFields, captured) == 40);
static_assert(offsetof(P2pApiFields, stream) == 24 && offsetof(P2pApiFields, captured) == 32);
static_assert(sizeof(DescriptorV5) == 112 && offsetof(DescriptorV5, coll) == 24);
static_assert(offsetof(DescriptorV5, parent) == 8 && offsetof(DescriptorV5, rank) == 16);
static_assert(sizeof(DescriptorV4) == 104 && offsetof(DescriptorV4, coll) == 24);
static_assert(offsetof(DescriptorV4, parent) == 8 && offsetof(DescriptorV4, rank) == 16);
static_assert(sizeof(StateArguments) == 8);
static_assert(sizeof(ProfilerV5) == 48 && sizeof(ProfilerV4) == 48);
static_assert(offsetof(ProfilerV5, start_event) == 16 && offsetof(ProfilerV5, finalize) == 40);
static_assert(offsetof(ProfilerV4, start_event) == 16 && offsetof(ProfilerV4, finalize) == 40);

}  // namespace weft::nccl_plugin
