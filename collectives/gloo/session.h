// What one rank's communicators share: the store, the board, the sockets' thread, and a watcher
// that wakes waits so that they can look around.
#pragma once

#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/gloo/board.h"
#include "collectives/gloo/store.h"
#include "weft/clock.h"
#include "weft/transport.h"

namespace weft::collectives::gloo {

class GlooMember;

// Thread-safe. Its lock is held while it wakes a wait, and never while it calls a member.
class Session {
 public:
  // While one lives, the watcher calls `wake` every round, and at once when this rank has aborted
  // or left, which it says. `wake` must not call the session.
  class Watched {
   public:
    Watched(Session& session, std::function<void(bool ended)> wake);
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

   private:
    friend class Session;
    Session& session_;
    const std::function<void(bool)> wake_;
  };

  // Blocks until all ranks have come to the store.
  static absl::StatusOr<std::shared_ptr<Session>> Open(const GlooTransportOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  absl::Duration deadline() const { return options_.deadline; }
  Clock& clock() const { return Clock::Steady(); }
  Nanos WaitLimit() const;
  const Store& store() const { return store_; }
  std::shared_ptr<::gloo::transport::Device>& device() { return device_; }

  // The member hears of this rank's and its peers' aborts, and of the end.
  void Add(const std::shared_ptr<GlooMember>& member);

  // False when `name` already belonged to a communicator of this rank.
  bool TakeName(const std::string& name);

  // Waits for a message, at most until the watcher's next round; true when it has completed. Throws
  // what gloo throws.
  bool WaitARound(::gloo::transport::UnboundBuffer& buffer, bool recv);
  // Asks `done` again and again until it says true; false at the limit or when this rank has ended.
  bool Poll(Nanos limit, const std::function<bool()>& done);

  // Posts why this rank failed, once.
  void Report(const Post& post);
  std::optional<Post> PostOf(int rank) const { return board_.Read(rank); }
  // The failure that all ranks tell of. Waits up to two seconds, not beyond the deadline, for the
  // posts of others. Something must have been posted.
  Post Story();

  void Abort(const absl::Status& cause);
  absl::Status failure();
  // This rank ends: tells the peers, ends every wait and the watcher. Not from an operation.
  void Leave();
  // Why this rank's waits have ended, if it has aborted or left.
  std::optional<Post> ended() const;

 private:
  Session(const GlooTransportOptions& options, std::shared_ptr<::gloo::transport::Device> device);

  absl::Status MeetAll();
  void Watch();
  void NoticeAborts();
  void WakeLocked();
  std::vector<std::shared_ptr<GlooMember>> Members() const;

  const GlooTransportOptions options_;
  const Store store_;
  const Board board_;
  std::shared_ptr<::gloo::transport::Device> device_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_watching_ = false;
  bool reported_ = false;
  std::optional<Post> ended_;
  std::optional<Post> story_;
  std::set<int> aborted_peers_;
  std::vector<std::weak_ptr<GlooMember>> members_;
  std::set<std::string> names_;
  std::set<Watched*> waits_;
  std::thread watcher_;
};

}  // namespace weft::collectives::gloo
