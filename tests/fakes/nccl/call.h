// One operation as a member asked for it, and what it does once all have.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/fakes/engine.h"
#include "tests/fakes/nccl/reduction.h"

namespace weft::fakes::nccl {

enum class Function { kReduce, kBroadcast, kAllGather, kReduceScatter, kAllReduce, kSend, kRecv };

struct Call {
  Function function = Function::kAllReduce;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;  // as NCCL counts: of the smaller buffer for gathers and scatters
  ncclDataType_t type = ncclFloat32;
  Reduction reduction;
  int root = 0;  // the peer of kSend and kRecv
  cudaStream_t stream = nullptr;
};

bool IsPointToPoint(const Call& call);
bool Reduces(const Call& call);

// What all members have to agree on: "reduce 1024 f32 (sum) to rank 1".
std::string Text(const Call& call);
std::string Text(const std::vector<Call>& calls);
bool Agree(const std::vector<Call>& a, const std::vector<Call>& b);

// Null where a buffer that `rank` uses is.
const char* MissingBuffer(const Call& call, int rank);

// What the member `rank` of `ranks` touches. In place, nothing is written that keeps its value.
void AddAccesses(const Call& call, int rank, int ranks, std::vector<Access>& accesses);

// The collective, on the host: `calls` of all members by rank, one function.
void Run(const std::vector<Call>& calls, SumOrder order);

// What a communicator of one rank does.
void RunAlone(const Call& call);

}  // namespace weft::fakes::nccl
