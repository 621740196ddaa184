#include "scheduler/groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft::scheduler {

GroupIndex::GroupIndex(const Plan& plan) : plan_(plan), entries_(plan.groups.size()) {
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const std::vector<std::vector<int>>& parts = plan.groups[g].parts;
    Entry& entry = entries_[g];
    for (const std::vector<int>& part : parts) {
      entry.members += static_cast<std::int64_t>(part.size());
    }
    if (entry.members == 1) {
      entry.only_rank = parts[0][0];
      continue;
    }
    entry.begin = parts_.size();
    parts_.resize(parts_.size() + plan.lanes.size(), -1);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      for (int rank : parts[part]) parts_[entry.begin + rank] = static_cast<std::int32_t>(part);
    }
  }
}

}  // namespace weft::scheduler

namespace weft {

std::string Group::PartName(std::size_t part) const {
  return parts.size() == 1 ? name : absl::StrCat(name, " ", part);
}

int Group::PartOf(int rank) const {
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (std::binary_search(parts[part].begin(), parts[part].end(), rank)) {
      return static_cast<int>(part);
    }
  }
  return -1;
}

}  // namespace weft
