// What all ranks of one local world share: their links, who waits for whom, the first failure, and
// the meeting place for new communicators.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/failure.h"
#include "collectives/local/links.h"
#include "weft/clock.h"
#include "weft/transport.h"

namespace weft::collectives::local {

class Group;

// Thread-safe. Lock order: a group's lock may be held when the world is called; the world never
// calls a group while it holds its own.
class World {
 public:
  World(const LocalTransportOptions& options, Clock& clock);

  int size() const { return size_; }
  Clock& clock() { return clock_; }
  absl::Duration deadline() const { return deadline_; }
  Links& links() { return links_; }

  // When a wait that began at `begin` must end. Emulated transfers do not count against the
  // deadline: a peer may be late only because its link is busy.
  Nanos WaitLimit(Nanos begin) const;

  // Meets the other members. `rank` is this rank in the world.
  absl::StatusOr<std::shared_ptr<Group>> Join(int rank, const std::string& name,
                                              const std::vector<int>& world_ranks);

  // `rank` aborts its communicators, or leaves, which ends only what still needs it. The first call
  // for a rank wins. The rank is refused in Join() from then on.
  void Abort(int rank, const absl::Status& cause);
  void Leave(int rank);

  // Records that a communicator of `world_ranks` has failed.
  void NoteFailure(const Failure& failure, const std::string& communicator,
                   const std::vector<int>& world_ranks);
  // OK while no communicator of `rank` has failed; then the first failure in the world.
  absl::Status FailureOf(int rank) const;

  // While set, a peer that gives up on `rank` can say what `rank` itself was waiting for.
  void SetWaiting(int rank, std::vector<int> missing, std::string operation);
  void ClearWaiting(int rank);
  // "; rank 1 itself waits for rank 3 in ..." for the first of `missing` that waits, following the
  // chain to its end; empty if none waits.
  std::string WhyMissing(const std::vector<int>& missing) const;

 private:
  struct RankState {
    std::optional<Failure> ended;  // aborted or left
    bool failed = false;           // one of its communicators has
    std::set<std::string> names;   // of the communicators it has joined or tried to
    std::vector<std::weak_ptr<Group>> groups;
    std::vector<int> waits_for;
    std::string waits_in;
  };
  // Members that meet under one name. `outcome` is set once, for all who wait.
  struct Meeting {
    std::string name;
    std::vector<int> world_ranks;
    std::set<int> arrived;
    std::optional<Failure> failure;
    std::shared_ptr<Group> group;
  };

  std::shared_ptr<Meeting> FindMeeting(const std::string& name, int rank,
                                       const std::vector<int>& world_ranks);
  void Forget(const Meeting& meeting);
  std::vector<std::shared_ptr<Group>> End(int rank, Failure failure);

  Clock& clock_;
  const absl::Duration deadline_;
  const int size_;
  Links links_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RankState> ranks_;
  std::vector<std::shared_ptr<Meeting>> meetings_;
  std::optional<std::pair<Failure, std::string>> first_failure_;
};

}  // namespace weft::collectives::local
