// The kernels' device code.
#include "device/cuda/device_block.h"
#include "device/cuda/launch.h"

namespace weft::device {

template <typename F>
const void* EntryOf() {
  return reinterpret_cast<const void*>(&RunBlocks<F>);
}

// Instantiated as a whole, it needs the entries of all.
template <typename List>
struct Entries;
template <typename... F>
struct Entries<KernelList<F...>> {
  static const void* (*const all[])();
};
template <typename... F>
const void* (*const Entries<KernelList<F...>>::all[])() = {&EntryOf<F>...};

template struct Entries<Kernels>;

cudaError_t LoadAllKernels() {
  for (const auto entry : Entries<Kernels>::all) {
    cudaFuncAttributes unused{};
    if (const cudaError_t error = cudaFuncGetAttributes(&unused, entry()); error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

}  // namespace weft::device
