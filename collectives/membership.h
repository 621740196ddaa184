// Who is in a communicator.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weft::collectives {

struct Membership {
  std::string name;
  int rank = 0;  // in the group
  std::vector<int> world_ranks;

  int size() const { return static_cast<int>(world_ranks.size()); }
  int world_rank() const { return world_ranks[rank]; }
};

// The checks of Transport::CreateCommunicator() that need no peer, for rank `self` of a world of
// `world_size`.
absl::Status CheckNewCommunicator(const std::string& name, const std::vector<int>& world_ranks,
                                  int self, int world_size);

}  // namespace weft::collectives
