// Ranks as threads, for tests of the fakes.
#pragma once

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/program.h"

namespace weft::fakes {

// Calls that have to succeed, on the threads of ranks.
#define CUDA(call)                \
  do {                            \
    EXPECT_EQ(call, cudaSuccess); \
  } while (false)
#define NCCL(call)                                             \
  do {                                                         \
    EXPECT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr); \
  } while (false)

// Runs f(rank) on a thread for each rank, with the device of its number current; all threads stand
// for their ranks before the first begins.
inline void RunRanks(int ranks, const std::function<void(int rank)>& f) {
  std::latch ready(ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const HostThread host;
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      ready.arrive_and_wait();
      f(rank);
    });
  }
}

// Device memory with `values`, or not written.
template <typename T>
class Array {
 public:
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  explicit Array(std::size_t size) : size_(size) {
    EXPECT_EQ(
        cudaMalloc(reinterpret_cast<void**>(&data_), std::max<std::size_t>(size, 1) * sizeof(T)),
        cudaSuccess);
  }
  ~Array() { static_cast<void>(cudaFree(data_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() { return data_; }
  std::size_t size() const { return size_; }
  std::vector<T> Read() const {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

inline ncclUniqueId NewId() {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

inline ncclComm_t Join(const ncclUniqueId& id, int ranks, int rank, const char* name) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = name;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, ranks, id, rank, &config), ncclSuccess);
  return comm;
}

// A fault of the kind whose text has all of `parts`.
inline ::testing::AssertionResult Found(FaultKind kind, const std::vector<std::string>& parts) {
  for (const Fault& fault : Faults()) {
    bool all = fault.kind == kind;
    for (const std::string& part : parts) all &= fault.text.find(part) != std::string::npos;
    if (all) return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << "no " << Name(kind) << " with " << ::testing::PrintToString(parts) << " among\n"
         << FaultText();
}

}  // namespace weft::fakes
