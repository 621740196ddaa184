// What one rank knows of a run whose ranks meet in a store: who has come, and why ranks failed.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/board.h"
#include "collectives/membership.h"
#include "collectives/store.h"
#include "weft/clock.h"

namespace weft::collectives {

struct StoreSessionOptions {
  int rank = 0;
  int size = 1;
  std::string store;
  absl::Duration deadline;
  Clock* clock = nullptr;
};

// Thread-safe. Holds no lock while it calls anybody but the clock.
class StoreSession {
 public:
  explicit StoreSession(const StoreSessionOptions& options);
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;

  // What can be said of the options without a peer.
  static absl::Status Check(int rank, int size, const std::string& store);

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  absl::Duration deadline() const { return options_.deadline; }
  Clock& clock() const { return *options_.clock; }
  Nanos WaitLimit() const;
  const Store& store() const { return store_; }
  const Board& board() const { return board_; }

  // Blocks until all ranks have come to the store.
  absl::Status MeetAll();

  // This rank's place in a new communicator, whose name is taken then. Fails for what can be told
  // without a peer: bad arguments, a name taken before, a session that has ended.
  absl::StatusOr<Membership> NewMembership(std::string name, std::vector<int> world_ranks);

  // Asks `done` again and again until it says true; false at the limit or when this rank has ended.
  bool Poll(Nanos limit, const std::function<bool()>& done);

  // Posts why this rank failed, once.
  void Report(const Post& post);
  std::optional<Post> PostOf(int rank) const { return board_.Read(rank); }
  // The failure that all ranks tell of. Waits up to two seconds, not beyond the deadline, for the
  // posts of others. Something must have been posted.
  Post Story();
  // OK while nothing has been posted.
  absl::Status failure();

  // Why this rank's waits have ended, if it has aborted or left.
  std::optional<Post> ended() const;

 protected:
  ~StoreSession() = default;

  // Ends every Poll(). False when this rank had ended before; the first reason stays.
  bool SetEnded(const Post& post);

 private:
  const StoreSessionOptions options_;
  const Store store_;
  const Board board_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool reported_ = false;
  std::optional<Post> ended_;
  std::optional<Post> story_;
  std::set<std::string> names_;
};

}  // namespace weft::collectives
