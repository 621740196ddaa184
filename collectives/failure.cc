#include "collectives/failure.h"

#include "absl/strings/str_cat.h"

namespace weft::collectives {

absl::Status AsSeenBy(const Failure& failure, const std::string& communicator, int world_rank) {
  const std::string subject = failure.rank < 0 || failure.rank == world_rank
                                  ? std::string()
                                  : absl::StrCat("rank ", failure.rank, " ");
  return absl::Status(failure.code, absl::StrCat("communicator '", communicator, "' (rank ",
                                                 world_rank, "): ", subject, failure.what));
}

std::string RankList(const std::vector<int>& world_ranks) {
  if (world_ranks.size() == 1) return absl::StrCat("rank ", world_ranks[0]);
  std::string text = "ranks ";
  for (std::size_t i = 0; i < world_ranks.size(); ++i) {
    if (i > 0) text += i + 1 == world_ranks.size() ? " and " : ", ";
    absl::StrAppend(&text, world_ranks[i]);
  }
  return text;
}

Failure WaitedFor(int rank, absl::Duration waited, const std::vector<int>& missing,
                  const std::string& operation) {
  return {absl::StatusCode::kDeadlineExceeded, rank,
          absl::StrCat("waited ", absl::FormatDuration(waited), " for ", RankList(missing), " in ",
                       operation)};
}

Failure AbortedBy(int rank, const absl::Status& cause) {
  return {cause.code(), rank, absl::StrCat("aborted: ", cause.message())};
}

}  // namespace weft::collectives
