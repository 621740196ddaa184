#include "tests/support/pinned.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace weft::testing {

Pinned::Pinned(void* data, std::size_t bytes) : data_(bytes > 0 ? data : nullptr) {
  if (data_ == nullptr) return;
  EXPECT_EQ(cudaHostRegister(data_, bytes, cudaHostRegisterPortable), cudaSuccess);
}

Pinned::~Pinned() {
  if (data_ == nullptr) return;
  EXPECT_EQ(cudaHostUnregister(data_), cudaSuccess);
}

}  // namespace weft::testing
