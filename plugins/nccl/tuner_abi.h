// NCCL's tuner interface, versions 5 (NCCL 2.28) and 4 (2.24 to 2.27).
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/nccl/abi.h"

namespace weft::nccl_plugin {

enum Function : int { kBroadcast = 0, kReduce = 1 };
enum Algorithm : int { kTree = 0, kRing = 1 };
enum Protocol : int { kLl = 0, kLl128 = 1, kSimple = 2 };
inline constexpr int kAlgorithms = 7;
inline constexpr int kProtocols = 3;

struct NvlDomainsV5 {
  int domains;
  int min_ranks;
  int max_ranks;
};

enum HardwareLink : int { kNvlink = 0, kPci = 1, kNet = 2 };
inline constexpr int kHardwareLinks = 3;

// Latencies in us, bandwidths in GB/s (1e9 bytes per second). The rows of the latter are compute
// capabilities (Volta, Ampere, Hopper, Blackwell), their columns 1, 2 and 4 or more nodes.
struct TunerConstantsV5 {
  double base_latency[kAlgorithms][kProtocols];
  double link_latency[kHardwareLinks][kAlgorithms][kProtocols];
  double ll_max[4][3];
  double channel_ring_ll128[4][3];
  double channel_tree_ll128[4][3];
  double channel_tree[4][3];
  double channel_nvls_tree[4][3];
};

// `table` is float[algorithms][protocols], whatever its declared type says.
using GetCollInfo = int (*)(void* context, int function, std::size_t bytes, int pipe_ops,
                            float** table, int algorithms, int protocols, int registered,
                            int* channels);

struct TunerV5 {
  const char* name;
  int (*init)(void** context, std::uint64_t communicator, std::size_t ranks, std::size_t nodes,
              Logger log, NvlDomainsV5* domains, TunerConstantsV5* constants);
  GetCollInfo get_coll_info;
  int (*finalize)(void* context);
};

struct TunerV4 {
  const char* name;
  int (*init)(std::size_t ranks, std::size_t nodes, Logger log, void** context);
  GetCollInfo get_coll_info;
  int (*destroy)(void* context);
};

static_assert(sizeof(NvlDomainsV5) == 12);
static_assert(sizeof(TunerConstantsV5) == 8 * (21 + 63 + 5 * 12));
static_assert(offsetof(TunerConstantsV5, link_latency) == 168);
static_assert(offsetof(TunerConstantsV5, ll_max) == 672);
static_assert(offsetof(TunerConstantsV5, channel_ring_ll128) == 768);
static_assert(sizeof(TunerV5) == 32 && sizeof(TunerV4) == 32);
static_assert(offsetof(TunerV5, get_coll_info) == 16 && offsetof(TunerV4, get_coll_info) == 16);

}  // namespace weft::nccl_plugin
