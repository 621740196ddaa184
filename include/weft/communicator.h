// Collectives over a fixed group of ranks: the seam between Weft and what moves bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "weft/dtype.h"
#include "weft/log.h"
#include "weft/stream.h"

#pragma GCC visibility push(default)
namespace weft {

// A NaN in any contribution gives NaN, also for kMax.
enum class ReduceOp { kSum, kMax };

// Names an operation in error messages and traces. The characters must stay valid until the
// operation has run.
struct OpTag {
  std::string_view matrix;
  std::string_view stage;
};

// One rank's membership in a group. Every member calls the same operations with the same
// arguments (op, root, counts, dtype) in the same order; what differs is found and reported as
// InvalidArgument on every member where the transport can see it.
//
// Every call enqueues on `stream` and returns at once; buffers must stay valid until the stream has
// passed the item. Bad arguments are returned at once and enqueue nothing. What fails later fails
// the stream. All operations of one communicator are enqueued from one thread at a time, and run in
// the order in which they were enqueued even when the streams differ.
//
// Any wait for a peer ends at the transport's deadline with DeadlineExceeded; a peer that is gone
// gives Unavailable. Both name the rank waited for, the tag and the communicator. From then on the
// communicator is dead: every later operation fails at once with the same status.
//
// Sums are formed in fp32, in ascending rank order of the group, and rounded once to the dtype, so
// that every transport gives the same bits. Ranks ("root", index of spans) are ranks of the group.
// In-place operation is allowed exactly where stated. Counts of zero are allowed everywhere. Error
// texts speak of world ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // World rank of each member, ascending.
  virtual const std::vector<int>& world_ranks() const = 0;

  // recv[i] = op over ranks of send[i]; `count` elements. send == recv is allowed.
  virtual absl::Status AllReduce(Stream& stream, const void* send, void* recv, std::int64_t count,
                                 DType dtype, ReduceOp op, OpTag tag) = 0;

  // As AllReduce, but only `root` receives; recv is ignored elsewhere. send == recv on root
  // allowed.
  virtual absl::Status Reduce(Stream& stream, const void* send, void* recv, std::int64_t count,
                              DType dtype, ReduceOp op, int root, OpTag tag) = 0;

  // root's `bytes` bytes reach every member's buffer.
  virtual absl::Status Broadcast(Stream& stream, void* buffer, std::int64_t bytes, int root,
                                 OpTag tag) = 0;

  // Rank r contributes bytes[r] bytes; every member receives all, packed in rank order.
  // send may be this rank's own place in recv.
  virtual absl::Status AllGatherV(Stream& stream, const void* send, void* recv,
                                  absl::Span<const std::int64_t> bytes, OpTag tag) = 0;

  // send holds sum(counts) elements; rank r receives the reduction of its counts[r] elements, which
  // lie behind those of the ranks before it. No overlap of send and recv.
  virtual absl::Status ReduceScatterV(Stream& stream, const void* send, void* recv,
                                      absl::Span<const std::int64_t> counts, DType dtype,
                                      ReduceOp op, OpTag tag) = 0;

  // As AllGatherV, but only `root` receives; recv is ignored elsewhere.
  virtual absl::Status GatherV(Stream& stream, const void* send, void* recv,
                               absl::Span<const std::int64_t> bytes, int root, OpTag tag) = 0;

  // root's send holds sum(bytes) bytes, packed in rank order; rank r receives its bytes[r]. send is
  // ignored elsewhere. No overlap of send and recv.
  virtual absl::Status ScatterV(Stream& stream, const void* send, void* recv,
                                absl::Span<const std::int64_t> bytes, int root, OpTag tag) = 0;

  // Reduce, Broadcast, GatherV and ScatterV calls between these two run as one operation: they
  // begin together and move side by side, so that what goes opposite ways uses both directions of a
  // link. All on one stream; memory that one of them writes belongs to no other. A call that
  // returns an error, as any other kind of collective does here, ends in nothing being enqueued:
  // GroupEnd() returns the first such error. Groups do not nest.
  virtual absl::Status GroupStart() = 0;
  virtual absl::Status GroupEnd() = 0;

  // Passes on no member before all members have reached it.
  virtual absl::Status Barrier(Stream& stream, OpTag tag) = 0;

  // OK, or why the communicator is dead. Thread-safe.
  virtual absl::Status status() const = 0;
};

// One rank's way to its peers: creates communicators and ends them together.
class Transport {
 public:
  virtual ~Transport() = default;

  // "local", "gloo", "nccl".
  virtual std::string_view kind() const = 0;
  virtual int rank() const = 0;  // in the world
  virtual int size() const = 0;

  // Collective over `world_ranks` (ascending, without repetition, this rank among them): the
  // members call it with the same arguments, in the same order as their other creations. Blocks
  // until all have come or the deadline passes. `name` must be new. Groups of one are
  // allowed here; Weft never asks for one.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      std::string name, std::vector<int> world_ranks) = 0;

  // Kills every communicator of this rank with `cause`, wakes operations that wait in them, and
  // lets peers know: their operations fail with a status that repeats `cause`'s text and names this
  // rank. The first cause wins. Thread-safe, also from inside an operation; never blocks on a peer.
  virtual void Abort(const absl::Status& cause) = 0;

  // Operations of a communicator that dies may end early without failing their streams (NCCL): what
  // the streams do from then on is worthless, and this is true before they do it. Cheap,
  // thread-safe.
  virtual bool ended() const { return false; }

  // OK, or the first failure that this rank knows of, its own or a peer's. After a failure it may
  // wait (at most a second or two, never beyond the deadline) to learn the root cause, so that all
  // ranks tell the same story. Thread-safe.
  virtual absl::Status failure() = 0;

  // How this transport works here, a sentence each; a warning where it could be made to work
  // better. Commit() logs them.
  struct Note {
    LogLevel level = LogLevel::kInfo;
    std::string text;
  };
  virtual std::vector<Note> notes() const { return {}; }
};

}  // namespace weft
#pragma GCC visibility pop
