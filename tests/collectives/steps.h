// Collectives as test data: what each rank passes, and what a serial float64 computation expects.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <random>
#include <string>
#include <vector>

#include "weft/communicator.h"
#include "weft/dtype.h"
#include "weft/stream.h"

namespace weft::testing {

enum class Kind { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kGather, kScatter };
inline constexpr int kKinds = 7;

struct Step {
  Kind kind = Kind::kAllReduce;
  // Elements of `dtype` for reductions, otherwise bytes; one per rank (the first one counts for
  // kAllReduce, kReduce and kBroadcast).
  std::vector<std::int64_t> counts;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  bool in_place = false;
  // Values are small integers, whose sums are exact.
  bool integers = false;
  std::uint64_t seed = 0;
};

std::ostream& operator<<(std::ostream& out, const Step& step);

// Any step for a group of `size`, zero counts included.
Step RandomStep(std::mt19937_64& random, int size);

// One rank's memory for a step. result() is what it received, empty where it receives nothing.
struct StepMemory {
  std::vector<std::byte> send;
  std::vector<std::byte> recv;
  std::int64_t own_offset = 0;  // of send inside recv, when in place
  bool in_place = false;
};

// Fills the memory and enqueues; returns what the call returned.
absl::Status Issue(const Step& step, Communicator& communicator, Stream& stream,
                   StepMemory& memory);

// Compares every rank's received bytes (by rank) with the expectation; "" or what is wrong.
std::string Verify(const Step& step, const std::vector<StepMemory>& memory);

}  // namespace weft::testing
