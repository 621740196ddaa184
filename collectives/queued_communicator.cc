#include "collectives/queued_communicator.h"

#include <cstdint>
#include <utility>

#include "base/status_macros.h"
#include "collectives/checked_communicator.h"
#include "collectives/operation.h"

namespace weft::collectives {
namespace {

class QueuedCommunicator final : public CheckedCommunicator {
 public:
  explicit QueuedCommunicator(std::shared_ptr<Member> member)
      : CheckedCommunicator(member->membership()), member_(std::move(member)) {}

  absl::Status status() const override { return member_->status(); }

 private:
  // An operation on its way through a stream; shared by the two items that are enqueued for it.
  struct Pending {
    std::shared_ptr<Member> member;
    Operation op;
    std::int64_t sequence = 0;
    bool ran = false;
  };

  absl::Status Push(Stream& stream, Operation op) override {
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
};

}  // namespace

std::unique_ptr<Communicator> MakeCommunicator(std::shared_ptr<Member> member) {
  return std::make_unique<QueuedCommunicator>(std::move(member));
}

}  // namespace weft::collectives
