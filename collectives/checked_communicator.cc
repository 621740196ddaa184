#include "collectives/checked_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::collectives {
namespace {

std::vector<std::int64_t> Counts(absl::Span<const std::int64_t> span) {
  return {span.begin(), span.end()};
}

}  // namespace

absl::Status CheckedCommunicator::AllReduce(Stream& stream, const void* send, void* recv,
                                            std::int64_t count, DType dtype, ReduceOp op,
                                            OpTag tag) {
  return Enqueue(stream, {OpKind::kAllReduce, send, recv, {count}, dtype, op, 0, tag});
}

absl::Status CheckedCommunicator::Reduce(Stream& stream, const void* send, void* recv,
                                         std::int64_t count, DType dtype, ReduceOp op, int root,
                                         OpTag tag) {
  return Enqueue(stream, {OpKind::kReduce, send, recv, {count}, dtype, op, root, tag});
}

absl::Status CheckedCommunicator::Broadcast(Stream& stream, void* buffer, std::int64_t bytes,
                                            int root, OpTag tag) {
  return Enqueue(
      stream,
      {OpKind::kBroadcast, nullptr, buffer, {bytes}, DType::kF32, ReduceOp::kSum, root, tag});
}

absl::Status CheckedCommunicator::AllGatherV(Stream& stream, const void* send, void* recv,
                                             absl::Span<const std::int64_t> bytes, OpTag tag) {
  return Enqueue(
      stream, {OpKind::kAllGather, send, recv, Counts(bytes), DType::kF32, ReduceOp::kSum, 0, tag});
}

absl::Status CheckedCommunicator::ReduceScatterV(Stream& stream, const void* send, void* recv,
                                                 absl::Span<const std::int64_t> counts, DType dtype,
                                                 ReduceOp op, OpTag tag) {
  return Enqueue(stream, {OpKind::kReduceScatter, send, recv, Counts(counts), dtype, op, 0, tag});
}

absl::Status CheckedCommunicator::GatherV(Stream& stream, const void* send, void* recv,
                                          absl::Span<const std::int64_t> bytes, int root,
                                          OpTag tag) {
  return Enqueue(
      stream, {OpKind::kGather, send, recv, Counts(bytes), DType::kF32, ReduceOp::kSum, root, tag});
}

absl::Status CheckedCommunicator::ScatterV(Stream& stream, const void* send, void* recv,
                                           absl::Span<const std::int64_t> bytes, int root,
                                           OpTag tag) {
  return Enqueue(stream, {OpKind::kScatter, send, recv, Counts(bytes), DType::kF32, ReduceOp::kSum,
                          root, tag});
}

absl::Status CheckedCommunicator::GroupStart() {
  if (group_) return absl::FailedPreconditionError("a group has been started and not ended");
  WEFT_RETURN_IF_ERROR(status());
  group_.emplace();
  return absl::OkStatus();
}

absl::Status CheckedCommunicator::GroupEnd() {
  if (!group_) return absl::FailedPreconditionError("no group has been started");
  const std::optional<OpenGroup> group = std::exchange(group_, std::nullopt);
  WEFT_RETURN_IF_ERROR(group->status);
  return group->first ? Push(*group->stream, *group->first) : absl::OkStatus();
}

absl::Status CheckedCommunicator::Barrier(Stream& stream, OpTag tag) {
  return Enqueue(stream,
                 {OpKind::kBarrier, nullptr, nullptr, {}, DType::kF32, ReduceOp::kSum, 0, tag});
}

absl::Status CheckedCommunicator::Enqueue(Stream& stream, Operation op) {
  absl::Status checked = CheckArguments(op, rank(), size());
  if (!group_) {
    WEFT_RETURN_IF_ERROR(checked);
    return Push(stream, std::move(op));
  }
  checked.Update(status());
  if (checked.ok()) checked = Join(stream, std::move(op));
  if (group_->status.ok()) group_->status = checked;
  return checked;
}

absl::Status CheckedCommunicator::Join(Stream& stream, Operation op) {
  if (!IsRooted(op.kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(op), ": only collectives with a root can be in a group"));
  }
  if (group_->first && group_->stream != &stream) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(op), ": the group is on another stream"));
  }
  group_->stream = &stream;
  if (group_->first) {
    group_->first->joined.push_back(std::move(op));
  } else {
    group_->first = std::move(op);
  }
  return absl::OkStatus();
}

}  // namespace weft::collectives
