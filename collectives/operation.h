// One collective as data: what the argument checks, the comparison between members and the leaves
// work on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/link_cost.h"
#include "weft/communicator.h"
#include "weft/dtype.h"

namespace weft::collectives {

enum class OpKind : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  kBarrier,
};

struct Operation {
  OpKind kind = OpKind::kBarrier;
  const void* send = nullptr;
  void* recv = nullptr;  // kBroadcast: the buffer, on every rank; send is unused
  // Elements of `dtype` for the reducing kinds, otherwise bytes. One entry per rank for the
  // gathering and scattering kinds, one entry for the others, none for kBarrier.
  std::vector<std::int64_t> counts;
  DType dtype = DType::kF32;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  OpTag tag = {};
  // Rooted collectives that run together with this one, which is rooted then too.
  std::vector<Operation> joined = {};
};

// The operation itself and those joined to it, by their place.
inline std::size_t PartsOf(const Operation& op) { return 1 + op.joined.size(); }
inline const Operation& PartOf(const Operation& op, std::size_t place) {
  return place == 0 ? op : op.joined[place - 1];
}

bool IsReduction(OpKind kind);
bool IsRooted(OpKind kind);
// Whether bytes go to the root, of an operation that has one; otherwise they come from it.
bool IsInwards(OpKind kind);
bool IsPerRank(OpKind kind);
base::Pattern PatternOf(OpKind kind);

// Bytes of one unit of `counts`.
std::int64_t UnitBytes(const Operation& op);
// Bytes of the whole vector, without those of joined operations: the sum of `counts` in bytes.
std::int64_t TotalBytes(const Operation& op);
// Byte offset of each rank's part, and the total as last entry; `op` is of a per-rank kind.
std::vector<std::int64_t> PartOffsets(const Operation& op);

// "reduce of matrix 'blk.0.wq' (stage 'reduced')": what error texts call the operation; joined ones
// follow after " with ".
std::string Describe(const Operation& op);
// "reduce of 12 bf16 (sum) to root 1": what must be equal on all members, and a text that tells
// any two different operations apart.
std::string Signature(const Operation& op);
bool Agree(const Operation& a, const Operation& b);

// The checks that need no peer, by the contract of weft/communicator.h. The sentence names the
// argument. Joined operations are checked one by one, before they are joined.
absl::Status CheckArguments(const Operation& op, int rank, int size);

}  // namespace weft::collectives
