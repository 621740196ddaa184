// A block of a kernel on the host, with the order of operations that it has on a GPU: the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/block_size.h"

namespace weft::device {

class HostBlock {
 public:
  template <typename T>
  T* Shared() {
    static_assert(alignof(T) <= kBlockSharedAlignment);
    return reinterpret_cast<T*>(shared_);
  }

  template <typename Fn>
  void ForEach(std::int64_t count, Fn fn) {
    for (std::int64_t i = 0; i < count; ++i) fn(i);
  }

  template <typename Fn>
  double Sum(std::int64_t count, Fn fn) {
    double sums[kBlockThreads];
    for (std::int64_t thread = 0; thread < kBlockThreads; ++thread) {
      double sum = 0;
      for (std::int64_t i = thread; i < count; i += kBlockThreads) sum += fn(i);
      sums[thread] = sum;
    }
    for (int half = kBlockThreads / 2; half > 0; half /= 2) {
      for (int thread = 0; thread < half; ++thread) sums[thread] += sums[thread + half];
    }
    return sums[0];
  }

 private:
  alignas(kBlockSharedAlignment) std::byte shared_[kBlockSharedBytes];
};

}  // namespace weft::device
