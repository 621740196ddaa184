// One communicator of the local transport as all its members share it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collectives/failure.h"
#include "collectives/member.h"
#include "collectives/operation.h"
#include "weft/clock.h"

namespace weft::collectives::local {

class World;

// Every member brings its operation to a slot. When the last has come, the operation is committed:
// from then on each member does its share of the copying, reading and writing its peers' buffers
// without a lock, and none leaves before all are done, so that nobody's buffer is touched after its
// owner has gone on. Only waits before the commit and emulated waits after it can fail.
// Thread-safe.
class Group {
 public:
  // `world` outlives the group.
  Group(World& world, std::string name, std::vector<int> world_ranks);

  // Operation number `sequence` of member `rank`; blocks until it is complete on this rank.
  absl::Status Run(int rank, std::int64_t sequence, const Operation& op);

  // Kills the communicator on every member, with the first failure given.
  void Kill(const Failure& failure);
  // `world_rank` takes part in no operation that it has not brought itself to already.
  void Leave(int world_rank);

  // Who is told when the communicator dies; null when the member has gone.
  void SetMember(int rank, Member* member);

 private:
  struct Slot {
    std::vector<const Operation*> ops;  // by rank; null until it has come
    int arrived = 0;
    bool committed = false;
    int reduced = 0;  // members past the first half of an all-reduce
    int done = 0;     // members that touch no peer's buffer any more
    int left = 0;
    Nanos end = 0;  // of the emulated transfer
  };

  int size() const { return static_cast<int>(world_ranks_.size()); }
  absl::Status Meet(int rank, Slot& slot, const Operation& op, std::unique_lock<std::mutex>& lock);
  void Commit(Slot& slot);
  // Of the operation at `place` among those that run together.
  void CopyShare(int rank, Slot& slot, std::size_t place);
  void ReduceRange(const Slot& slot, std::size_t place, std::int64_t send_offset, void* to,
                   std::int64_t count) const;
  void AllReduceShare(int rank, Slot& slot);
  void MeetInTheMiddle(Slot& slot);
  std::vector<int> Missing(const Slot& slot) const;
  void KillLocked(const Failure& failure);

  World& world_;
  const std::string name_;
  const std::vector<int> world_ranks_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Nobody can be two operations ahead: the next commits only when all have left this one.
  std::array<Slot, 2> slots_;
  std::vector<Member*> members_;
  std::vector<bool> has_left_;
  std::optional<Failure> failure_;
};

}  // namespace weft::collectives::local
