#include "collectives/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::collectives {

absl::Status CheckNewCommunicator(const std::string& name, const std::vector<int>& world_ranks,
                                  int self, int world_size) {
  if (name.empty()) return absl::InvalidArgumentError("a communicator needs a name");
  const auto bad = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("communicator '", name, "' of ranks {",
                                                   absl::StrJoin(world_ranks, ", "), "}: ", what));
  };
  for (std::size_t i = 0; i < world_ranks.size(); ++i) {
    if (world_ranks[i] < 0 || world_ranks[i] >= world_size) {
      return bad(absl::StrCat("rank ", world_ranks[i], " is not in a world of ", world_size));
    }
    if (i > 0 && world_ranks[i] <= world_ranks[i - 1]) return bad("the ranks do not ascend");
  }
  if (!std::binary_search(world_ranks.begin(), world_ranks.end(), self)) {
    return bad(absl::StrCat("rank ", self, " creates it but is not in it"));
  }
  return absl::OkStatus();
}

}  // namespace weft::collectives
