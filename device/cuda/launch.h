// From a kernel functor to the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/block_size.h"
#include "device/cuda/kernel_list.h"

namespace weft::device {

// The GPU's entry of a kernel, for cudaLaunchKernel. Defined for all Kernels, in kernels.cu.
template <typename F>
const void* EntryOf();

// Brings all Kernels to the current device. Otherwise the first launch of each does, which waits
// for what runs there: with a collective under way whose peer waits for that launch, for ever.
cudaError_t LoadAllKernels();

// Enqueues kernel.Blocks() blocks on the current device.
template <typename F>
cudaError_t Launch(const F& kernel, cudaStream_t stream) {
  const std::int64_t blocks = kernel.Blocks();
  if (blocks == 0) return cudaSuccess;
  // What the hardware counts.
  if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  F copy = kernel;
  void* arguments[] = {&copy};
  return cudaLaunchKernel(EntryOf<F>(), dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads),
                          arguments, 0, stream);
}

}  // namespace weft::device
