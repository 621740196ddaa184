// What one rank's communicators share beside the store: the sockets' thread, and a watcher that
// wakes waits so that they can look around.
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
#include "collectives/board.h"
#include "collectives/store_session.h"
#include "weft/clock.h"
#include "weft/transport.h"

namespace weft::collectives::gloo {

class GlooMember;

// Thread-safe. Its lock is held while it wakes a wait, and never while it calls a member.
class Session final : public StoreSession {
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

  std::shared_ptr<::gloo::transport::Device>& device() { return device_; }

  // The member hears of this rank's and its peers' aborts, and of the end.
  void Add(const std::shared_ptr<GlooMember>& member);

  // Waits for a message, at most until the watcher's next round; true when it has completed. Throws
  // what gloo throws.
  bool WaitARound(::gloo::transport::UnboundBuffer& buffer, bool recv);
  void Abort(const absl::Status& cause);
  // This rank ends: tells the peers, ends every wait and the watcher. Not from an operation.
  void Leave();

 private:
  Session(const GlooTransportOptions& options, std::shared_ptr<::gloo::transport::Device> device);

  void Watch();
  void NoticeAborts();
  void WakeLocked();
  std::vector<std::shared_ptr<GlooMember>> Members() const;

  std::shared_ptr<::gloo::transport::Device> device_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_watching_ = false;
  std::set<int> aborted_peers_;
  std::vector<std::weak_ptr<GlooMember>> members_;
  std::set<Watched*> waits_;
  std::thread watcher_;
};

}  // namespace weft::collectives::gloo
