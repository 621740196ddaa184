// What every leaf's Communicator does alike: checks arguments and joins the calls of a group.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/membership.h"
#include "collectives/operation.h"
#include "weft/communicator.h"
#include "weft/stream.h"

namespace weft::collectives {

// Between GroupStart() and GroupEnd().
struct OpenGroup {
  Stream* stream = nullptr;
  std::optional<Operation> first;  // the others are joined to it
  absl::Status status;
};

// A leaf adds Push() and status().
class CheckedCommunicator : public Communicator {
 public:
  std::string_view name() const final { return membership_.name; }
  int rank() const final { return membership_.rank; }
  int size() const final { return membership_.size(); }
  const std::vector<int>& world_ranks() const final { return membership_.world_ranks; }

  absl::Status AllReduce(Stream& stream, const void* send, void* recv, std::int64_t count,
                         DType dtype, ReduceOp op, OpTag tag) final;
  absl::Status Reduce(Stream& stream, const void* send, void* recv, std::int64_t count, DType dtype,
                      ReduceOp op, int root, OpTag tag) final;
  absl::Status Broadcast(Stream& stream, void* buffer, std::int64_t bytes, int root,
                         OpTag tag) final;
  absl::Status AllGatherV(Stream& stream, const void* send, void* recv,
                          absl::Span<const std::int64_t> bytes, OpTag tag) final;
  absl::Status ReduceScatterV(Stream& stream, const void* send, void* recv,
                              absl::Span<const std::int64_t> counts, DType dtype, ReduceOp op,
                              OpTag tag) final;
  absl::Status GatherV(Stream& stream, const void* send, void* recv,
                       absl::Span<const std::int64_t> bytes, int root, OpTag tag) final;
  absl::Status ScatterV(Stream& stream, const void* send, void* recv,
                        absl::Span<const std::int64_t> bytes, int root, OpTag tag) final;
  absl::Status GroupStart() final;
  absl::Status GroupEnd() final;
  absl::Status Barrier(Stream& stream, OpTag tag) final;

 protected:
  // `membership` outlives the communicator's calls.
  explicit CheckedCommunicator(const Membership& membership) : membership_(membership) {}

  // Enqueues an operation whose arguments are good. The communicator may be dead.
  virtual absl::Status Push(Stream& stream, Operation op) = 0;

 private:
  absl::Status Enqueue(Stream& stream, Operation op);
  absl::Status Join(Stream& stream, Operation op);

  const Membership& membership_;
  std::optional<OpenGroup> group_;
};

}  // namespace weft::collectives
