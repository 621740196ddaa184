// What every transport's communicator shares: operations run one after another in the order in
// which they were enqueued, and the first failure stays.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/failure.h"
#include "collectives/membership.h"
#include "collectives/operation.h"
#include "weft/clock.h"

namespace weft::collectives {

// Nanoseconds of a duration, bounded so that it can be added to a clock's time.
Nanos BoundedNanos(absl::Duration duration);

// One rank's side of one communicator. Shared by the Communicator and by the operations it has
// enqueued, so that either may go first. Thread-safe.
class Member {
 public:
  Member(Membership membership, Clock& clock, absl::Duration deadline);
  virtual ~Member() = default;
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  const Membership& membership() const { return membership_; }

  // Runs operation number `sequence` (0, 1, ... in enqueue order) when those before it are done; in
  // a stream's worker. Fails at once when the communicator is dead. A failure kills it.
  absl::Status Execute(const Operation& op, std::int64_t sequence);

  // Operation `sequence` will never run because its stream has failed with `cause`. The peers can
  // not go on without this rank, so the communicator dies.
  void Skip(const Operation& op, const absl::Status& cause);

  // Makes `status` this rank's reason why the communicator is dead, unless it has one.
  void Kill(const absl::Status& status);

  absl::Status status() const;

 protected:
  // The operation itself; at most one at a time.
  virtual absl::Status Run(const Operation& op) = 0;

  // Kills the communicator on all members. Called without locks held.
  virtual void Fail(const Failure& failure) = 0;

  Clock& clock() { return clock_; }
  absl::Duration deadline() const { return deadline_; }

 private:
  absl::Status WaitForTurn(const Operation& op, std::int64_t sequence);

  const Membership membership_;
  Clock& clock_;
  const absl::Duration deadline_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t next_ = 0;
  absl::Status status_;
};

}  // namespace weft::collectives
