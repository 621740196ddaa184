// What a thread block of Weft's kernels has. A kernel is a functor that is called for each block as
// f(block, index): between the block's members it computes the same on every thread and writes
// nothing.
//
//   T* Shared<T>()      kBlockSharedBytes of memory that the block's threads share
//   ForEach(n, fn)      fn(i) for every i < n, spread over the threads; all are done at its end
//   Sum(n, fn)          the sum of fn(i), in double: each thread's share in turn, then a tree
#pragma once

#include <cstddef>

namespace weft::device {

inline constexpr int kBlockThreads = 256;
// Matrices are cut into square tiles. One more column keeps reads down a column apart in the banks
// of the shared memory.
inline constexpr int kTile = 64;
inline constexpr std::size_t kBlockSharedBytes = sizeof(float) * kTile * (kTile + 1);
inline constexpr std::size_t kBlockSharedAlignment = 16;

}  // namespace weft::device
