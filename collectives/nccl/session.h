// What one rank's communicators over NCCL share: the store, the one order of launches, a thread
// that watches over what is under way, and the end of all of them together.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/membership.h"
#include "collectives/nccl/launch_order.h"
#include "collectives/nccl/note.h"
#include "collectives/operation.h"
#include "collectives/store_session.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/mark.h"
#include "device/cuda/stream_state.h"
#include "weft/buffer.h"
#include "weft/transport.h"

namespace weft::collectives::nccl {

// A collective between its enqueueing and its end on the device. Its texts are its own: the
// caller's tag may be gone before the end is seen.
struct UnderWay {
  std::int64_t launch = 0;  // among all of the rank
  std::string operation;
  Operation op;  // without tags
  std::shared_ptr<device::Mark> begin;
  std::shared_ptr<device::Mark> end;
  std::shared_ptr<device::StreamState> stream;
  std::optional<Nanos> begun;  // when the device was first seen there, with all before it over
};

// One rank's side of one communicator. Who may touch what is the session's business.
struct Member {
  explicit Member(Membership ranks) : membership(std::move(ranks)) {}

  const Membership membership;  // NCCL keeps the name's address

  // Under Session::calls_.
  ncclComm_t comm = nullptr;
  std::unique_ptr<Buffer> scratch;

  // Under Session::mutex_.
  absl::Status status;
  std::deque<UnderWay> under_way;
  std::int64_t finished = 0;
  bool closed = false;
};

// Thread-safe. Locks are taken in the order calls_, mutex_, StoreSession's.
//
// The end comes in three steps, of which the first reason wins: every communicator is flagged and
// the streams of what is under way fail; the reason is posted; the watching thread aborts all
// communicators together, once no other thread is inside NCCL.
class Session final : public StoreSession, public std::enable_shared_from_this<Session> {
 public:
  // Blocks until all ranks have come to the store.
  static absl::StatusOr<std::shared_ptr<Session>> Open(const NcclTransportOptions& options,
                                                       device::CudaDevice& device,
                                                       ChosenOrder order);
  ~Session();

  device::CudaDevice& device() const { return device_; }
  const NcclTransportOptions& options() const { return options_; }
  const ChosenOrder& order() const { return order_; }
  // True before any operation ends early.
  bool ending() const { return ending_; }

  // Creates the communicator with its peers and connects it (create.cc).
  absl::StatusOr<std::shared_ptr<Member>> Create(Membership membership);

  // Enqueues an operation; on the caller's thread, in the order of the calls.
  absl::Status Issue(Member& member, Stream& stream, Operation op);

  // The status of a dead communicator, for which it waits while the story is being found.
  absl::Status StatusOf(const Member& member);
  // The same without a wait.
  absl::Status StatusNow(const Member& member) const;

  // Waits for the communicator's work and frees it, unless the session has failed.
  void Close(Member& member);

  // The failure began on this rank. Returns when all communicators are flagged.
  void Fail(const Post& post);
  absl::Status failure();

  // Closes what is open and ends the watching. Whoever is stuck in NCCL is left behind at the
  // deadline.
  void Leave();

 private:
  Session(const NcclTransportOptions& options, device::CudaDevice& device, ChosenOrder order);

  // create.cc
  absl::Status Connect(const std::shared_ptr<Member>& member);
  absl::Status Initialize(Member& member, const ncclUniqueId& id, Nanos limit);
  absl::Status WarmUp(Member& member);

  // session.cc
  absl::Status Launch(Member& member, device::CudaStream& stream, UnderWay& under_way);
  // Polls until the communicator has done what it was asked for. Under calls_.
  absl::Status Settle(Member& member, const std::string& what, Nanos limit);
  absl::Status Finalize(Member& member);
  bool SetStory(const Post& story);

  // watch.cc
  void Watch();
  void Look();
  // Takes off what is over; whether the device has failed goes to `error`. Under mutex_.
  void Advance(Member& member, absl::Status* error);
  bool IsLate(const Member& member) const;
  // Whether a member has closed the communicator without the collective that this rank waits in.
  bool HasLostAPeer();
  // What NCCL reports of its own accord, and of which communicator.
  struct Reported {
    std::string communicator;
    absl::Status status;
  };
  std::optional<Reported> AsyncError();
  // Finds out with the peers why nothing goes on.
  void FindStory(const std::optional<Reported>& reported);
  std::optional<Post> StoryFromStore(bool final);
  Note OwnNote();
  std::optional<std::int64_t> ClosedCountOf(const std::string& communicator, int rank) const;
  void AbortAll();
  std::vector<std::shared_ptr<Member>> Members() const;

  const NcclTransportOptions options_;
  device::CudaDevice& device_;
  const ChosenOrder order_;

  // Held by whoever is inside NCCL, and from the wait for the collective before to the end mark.
  std::mutex calls_;
  std::shared_ptr<device::Mark> last_end_;
  std::shared_ptr<device::StreamState> last_stream_;
  std::int64_t launches_ = 0;

  // Somebody is finding out why, or has: polls of NCCL are to be left.
  std::atomic<bool> ending_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Member>> members_;
  std::optional<Post> end_;  // why all is over
  bool posted_ = false;      // and the peers can know
  bool aborted_ = false;     // and NCCL's communicators are gone
  bool left_ = false;
  bool stop_ = false;
  bool watch_ended_ = false;
  std::thread watch_;
};

}  // namespace weft::collectives::nccl
