// What the tests of the fakes share: CUDA calls that have to succeed, and faults by kind.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/fakes/engine.h"
#include "tests/fakes/fake.h"

namespace weft::fakes {

#define OK(call)                  \
  do {                            \
    ASSERT_EQ(call, cudaSuccess); \
  } while (false)

inline int Count(FaultKind kind) {
  const std::vector<Fault> faults = Faults();
  return static_cast<int>(std::count_if(faults.begin(), faults.end(),
                                        [&](const Fault& fault) { return fault.kind == kind; }));
}

// The only fault, of this kind, with these words in its text.
inline void ExpectFault(FaultKind kind, const std::vector<std::string>& words) {
  const std::vector<Fault> faults = Faults();
  ASSERT_EQ(faults.size(), 1u) << FaultText();
  EXPECT_EQ(faults[0].kind, kind) << FaultText();
  for (const std::string& word : words) {
    EXPECT_NE(faults[0].text.find(word), std::string::npos)
        << "'" << word << "' is not in: " << faults[0].text;
  }
}

inline cudaStream_t NewStream(const std::string& name) {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  SetStreamName(stream, name);
  return stream;
}

inline cudaEvent_t NewEvent(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, flags), cudaSuccess);
  return event;
}

inline std::byte* NewMemory(std::size_t bytes) {
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
  return static_cast<std::byte*>(data);
}

inline Work Touch(const std::string& name, std::vector<Access> accesses) {
  Work work;
  work.name = name;
  work.accesses = std::move(accesses);
  return work;
}

class FakesTest : public ::testing::Test {
 protected:
  void SetUp() override { Reset(Options{.devices = 2}); }
};

}  // namespace weft::fakes
