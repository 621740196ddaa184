// Why a communicator is dead, in a form that every member can tell in its own words.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace weft::collectives {

struct Failure {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  // World rank that `what` is said of, or -1 when it is nobody's in particular.
  int rank = -1;
  // "waited 2s for rank 3 in reduce of matrix 'blk.0.wq'"
  std::string what;
};

// "communicator 'inter 1' (rank 2): waited 2s for rank 3 ...", and for another member than the one
// that failed "communicator 'inter 1' (rank 1): rank 2 waited 2s for rank 3 ...". Ranks are world
// ranks.
absl::Status AsSeenBy(const Failure& failure, const std::string& communicator, int world_rank);

// "rank 3", "ranks 3, 5 and 7".
std::string RankList(const std::vector<int>& world_ranks);

Failure WaitedFor(int rank, absl::Duration waited, const std::vector<int>& missing,
                  const std::string& operation);
Failure AbortedBy(int rank, const absl::Status& cause);

}  // namespace weft::collectives
