// A first-in first-out queue of device work: the only place where work of Weft runs.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "weft/clock.h"
#include "weft/event.h"

#pragma GCC visibility push(default)
namespace weft {

// Every call that enqueues returns at once; items run one after another, in the order enqueued.
// Order between streams is made by events alone.
//
// Failure is sticky and travels like data: once an item fails, or a wait meets a failed event, or
// Abort() is called, the stream has failed. Later items are then skipped, except those enqueued by
// EnqueueAlways; events recorded later complete with the error, so that no waiter hangs.
//
// An exception that leaves an item, of either kind, counts as an Internal error with its what().
// What an item owns must not throw when it is destroyed.
//
// Thread-safe; two threads that enqueue to one stream order their calls themselves.
// Destruction drains the queue. A stream that could wait for ever is to be aborted first.
class Stream {
 public:
  using Work = std::function<absl::Status()>;

  virtual ~Stream() = default;

  // As given at creation; names the stream in traces and messages.
  virtual std::string_view name() const = 0;

  // The device library's own (CUDA: cudaStream_t), for work that Weft has no call for; null on the
  // host.
  virtual void* native() const { return nullptr; }

  // Enqueues a host function. It may block (a collective does) but must not call back into this
  // stream's Synchronize(). A returned error fails the stream.
  virtual void Enqueue(Work work) = 0;

  // Enqueues a host function that runs whatever happened before; it is given the stream's status.
  virtual void EnqueueAlways(std::function<void(const absl::Status&)> work) = 0;

  // Moves `event` to this place in the queue.
  virtual void Record(Event& event) = 0;

  // Work enqueued later runs only after the point that `event` marks at the time of this call.
  // `event` must come from the same device kind.
  virtual void Wait(const Event& event) = 0;

  // Writes the time at which this place in the queue is reached, on the device's clock, to
  // `*time`, also when the stream has failed. `time` must stay valid until then.
  virtual void RecordTime(Nanos* time) = 0;

  // Blocks the host until everything enqueued before the call has run or been skipped.
  // DeadlineExceeded after `timeout`, otherwise the stream's status.
  virtual absl::Status Synchronize(absl::Duration timeout) = 0;

  // The first failure, or OK.
  virtual absl::Status status() const = 0;

  // Fails the stream now and wakes it if it waits on an event. An item that is running is not
  // interrupted. `cause` must not be OK; the first cause wins.
  virtual void Abort(absl::Status cause) = 0;
};

}  // namespace weft
#pragma GCC visibility pop
