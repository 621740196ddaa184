// What one op reads and writes on one rank: the ground that dependencies are derived from and
// checked against.
#pragma once

#include <array>
#include <cstdint>

#include "weft/plan.h"

namespace weft::scheduler {

// A slot, or something that is no buffer of the plan but has to be accessed in order all the same.
using Resource = int;
inline constexpr Resource kStateResource = kSlotCount;        // the rule's state of the matrix
inline constexpr Resource kVerdictResource = kSlotCount + 1;  // one per rank, not per matrix
inline constexpr Resource kCheckResource = kSlotCount + 2;    // one per rank: the checks' results
inline constexpr int kResourceCount = kSlotCount + 3;

struct Access {
  Resource resource = 0;
  bool reads = false;
  bool writes = false;
};

struct Accesses {
  std::array<Access, 5> items;
  int count = 0;

  const Access* begin() const { return items.data(); }
  const Access* end() const { return items.data() + count; }
};

// For a member of the op's group. Whatever runs once the step is closed reads the verdict: it
// forbids writes of weights and state, and tells how every later stage of a job has come out.
Accesses AccessesOf(const Op& op, int rank);

inline bool IsRooted(OpKind kind) {
  return kind == OpKind::kReduce || kind == OpKind::kBroadcast || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

// Where `resource` of `matrix` lies in an array of all resources of `matrices` matrices.
inline std::size_t ResourceIndex(std::int32_t matrix, Resource resource) {
  if (resource == kVerdictResource) return 0;
  if (resource == kCheckResource) return 1;
  return 2 + static_cast<std::size_t>(matrix) * (kSlotCount + 1) + resource;
}
inline std::size_t ResourceArraySize(std::size_t matrices) {
  return 2 + matrices * (kSlotCount + 1);
}

}  // namespace weft::scheduler
