// Who is in which part of a group, told in constant time.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/plan.h"

namespace weft::scheduler {

class GroupIndex {
 public:
  explicit GroupIndex(const Plan& plan);

  // -1 where `rank` is in no part.
  std::int32_t PartOf(std::int32_t group, int rank) const {
    const Entry& entry = entries_[group];
    return entry.only_rank >= 0 ? (entry.only_rank == rank ? 0 : -1) : parts_[entry.begin + rank];
  }
  // Ranks in all parts together.
  std::int64_t members(std::int32_t group) const { return entries_[group].members; }
  // The world rank of a rooted collective's root, for the part that `rank` is in.
  int RootOf(const Op& op, int rank) const {
    return plan_.groups[op.group].parts[PartOf(op.group, rank)][op.root];
  }
  bool IsRoot(const Op& op, int rank) const { return op.root >= 0 && RootOf(op, rank) == rank; }

 private:
  struct Entry {
    int only_rank = -1;  // the group's one rank; most groups of a large world are such
    std::size_t begin = 0;
    std::int64_t members = 0;
  };

  const Plan& plan_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> parts_;
};

}  // namespace weft::scheduler
