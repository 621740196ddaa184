#include "collectives/queued_communicator.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/operation.h"

namespace weft::collectives {
namespace {

// Between GroupStart() and GroupEnd().
struct OpenGroup {
  Stream* stream = nullptr;
  std::optional<Operation> first;  // the others are joined to it
  absl::Status status;
};

class QueuedCommunicator final : public Communicator {
 public:
  explicit QueuedCommunicator(std::shared_ptr<Member> member) : member_(std::move(member)) {}

  std::string_view name() const override { return member_->membership().name; }
  int rank() const override { return member_->membership().rank; }
  int size() const override { return member_->membership().size(); }
  const std::vector<int>& world_ranks() const override { return member_->membership().world_ranks; }

  absl::Status AllReduce(Stream& stream, const void* send, void* recv, std::int64_t count,
                         DType dtype, ReduceOp op, OpTag tag) override {
    return Enqueue(stream, {OpKind::kAllReduce, send, recv, {count}, dtype, op, 0, tag});
  }

  absl::Status Reduce(Stream& stream, const void* send, void* recv, std::int64_t count, DType dtype,
                      ReduceOp op, int root, OpTag tag) override {
    return Enqueue(stream, {OpKind::kReduce, send, recv, {count}, dtype, op, root, tag});
  }

  absl::Status Broadcast(Stream& stream, void* buffer, std::int64_t bytes, int root,
                         OpTag tag) override {
    return Enqueue(
        stream,
        {OpKind::kBroadcast, nullptr, buffer, {bytes}, DType::kF32, ReduceOp::kSum, root, tag});
  }

  absl::Status AllGatherV(Stream& stream, const void* send, void* recv,
                          absl::Span<const std::int64_t> bytes, OpTag tag) override {
    return Enqueue(stream, {OpKind::kAllGather, send, recv, Counts(bytes), DType::kF32,
                            ReduceOp::kSum, 0, tag});
  }

  absl::Status ReduceScatterV(Stream& stream, const void* send, void* recv,
                              absl::Span<const std::int64_t> counts, DType dtype, ReduceOp op,
                              OpTag tag) override {
    return Enqueue(stream, {OpKind::kReduceScatter, send, recv, Counts(counts), dtype, op, 0, tag});
  }

  absl::Status GatherV(Stream& stream, const void* send, void* recv,
                       absl::Span<const std::int64_t> bytes, int root, OpTag tag) override {
    return Enqueue(stream, {OpKind::kGather, send, recv, Counts(bytes), DType::kF32, ReduceOp::kSum,
                            root, tag});
  }

  absl::Status ScatterV(Stream& stream, const void* send, void* recv,
                        absl::Span<const std::int64_t> bytes, int root, OpTag tag) override {
    return Enqueue(stream, {OpKind::kScatter, send, recv, Counts(bytes), DType::kF32,
                            ReduceOp::kSum, root, tag});
  }

  absl::Status GroupStart() override {
    if (group_) return absl::FailedPreconditionError("a group has been started and not ended");
    WEFT_RETURN_IF_ERROR(member_->status());
    group_.emplace();
    return absl::OkStatus();
  }

  absl::Status GroupEnd() override {
    if (!group_) return absl::FailedPreconditionError("no group has been started");
    const std::optional<OpenGroup> group = std::exchange(group_, std::nullopt);
    WEFT_RETURN_IF_ERROR(group->status);
    return group->first ? Push(*group->stream, *group->first) : absl::OkStatus();
  }

  absl::Status Barrier(Stream& stream, OpTag tag) override {
    return Enqueue(stream,
                   {OpKind::kBarrier, nullptr, nullptr, {}, DType::kF32, ReduceOp::kSum, 0, tag});
  }

  absl::Status status() const override { return member_->status(); }

 private:
  // An operation on its way through a stream; shared by the two items that are enqueued for it.
  struct Pending {
    std::shared_ptr<Member> member;
    Operation op;
    std::int64_t sequence = 0;
    bool ran = false;
  };

  static std::vector<std::int64_t> Counts(absl::Span<const std::int64_t> span) {
    return {span.begin(), span.end()};
  }

  absl::Status Enqueue(Stream& stream, Operation op) {
    absl::Status checked = CheckArguments(op, rank(), size());
    if (!group_) {
      WEFT_RETURN_IF_ERROR(checked);
      return Push(stream, std::move(op));
    }
    checked.Update(member_->status());
    if (checked.ok()) checked = Join(stream, std::move(op));
    if (group_->status.ok()) group_->status = checked;
    return checked;
  }

  absl::Status Join(Stream& stream, Operation op) {
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

  absl::Status Push(Stream& stream, Operation op) {
    WEFT_RETURN_IF_ERROR(member_->status());
    auto pending = std::make_shared<Pending>();
    pending->member = member_;
    pending->op = std::move(op);
    pending->sequence = next_sequence_++;
    stream.Enqueue([pending] {
      pending->ran = true;
      return pending->member->Execute(pending->op, pending->sequence);
    });
    // A failed stream skips the item above without a word, and the peers would wait for it.
    stream.EnqueueAlways([pending](const absl::Status& status) {
      if (!pending->ran) pending->member->Skip(pending->op, status);
    });
    return absl::OkStatus();
  }

  const std::shared_ptr<Member> member_;
  std::int64_t next_sequence_ = 0;
  std::optional<OpenGroup> group_;
};

}  // namespace

std::unique_ptr<Communicator> MakeCommunicator(std::shared_ptr<Member> member) {
  return std::make_unique<QueuedCommunicator>(std::move(member));
}

}  // namespace weft::collectives
