// A thread block of a GPU; for nvcc only.
#pragma once

#include <cstdint>

#include "device/cuda/block_size.h"

namespace weft::device {

// For one-dimensional blocks of kBlockThreads. Its members compile for the host as well, since they
// are called in functions for both, but do nothing there.
class DeviceBlock {
 public:
  __device__ DeviceBlock(unsigned char* shared, double* sums) : shared_(shared), sums_(sums) {}

  template <typename T>
  __host__ __device__ T* Shared() {
    return reinterpret_cast<T*>(shared_);
  }

  template <typename Fn>
  __host__ __device__ void ForEach([[maybe_unused]] std::int64_t count, [[maybe_unused]] Fn fn) {
#ifdef __CUDA_ARCH__
    for (std::int64_t i = threadIdx.x; i < count; i += kBlockThreads) fn(i);
    __syncthreads();
#endif
  }

  template <typename Fn>
  __host__ __device__ double Sum([[maybe_unused]] std::int64_t count, [[maybe_unused]] Fn fn) {
#ifdef __CUDA_ARCH__
    const int thread = threadIdx.x;
    double sum = 0;
    for (std::int64_t i = thread; i < count; i += kBlockThreads) sum += fn(i);
    sums_[thread] = sum;
    __syncthreads();
    for (int half = kBlockThreads / 2; half > 0; half /= 2) {
      if (thread < half) sums_[thread] += sums_[thread + half];
      __syncthreads();
    }
    sum = sums_[0];
    // Not overwritten by a next sum before everyone has it.
    __syncthreads();
    return sum;
#else
    return 0;
#endif
  }

 private:
  unsigned char* shared_;
  double* sums_;
};

template <typename F>
__global__ void __launch_bounds__(kBlockThreads) RunBlocks(F f) {
  __shared__ alignas(kBlockSharedAlignment) unsigned char shared[kBlockSharedBytes];
  __shared__ double sums[kBlockThreads];
  DeviceBlock block(shared, sums);
  f(block, static_cast<std::int64_t>(blockIdx.x));
}

}  // namespace weft::device
