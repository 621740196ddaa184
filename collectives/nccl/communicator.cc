#include "collectives/nccl/communicator.h"

#include <utility>

#include "collectives/checked_communicator.h"
#include "collectives/operation.h"

namespace weft::collectives::nccl {
namespace {

class NcclCommunicator final : public CheckedCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<Session> session, std::shared_ptr<Member> member)
      : CheckedCommunicator(member->membership),
        session_(std::move(session)),
        member_(std::move(member)) {}
  ~NcclCommunicator() override { session_->Close(*member_); }

  absl::Status status() const override { return session_->StatusNow(*member_); }

 private:
  absl::Status Push(Stream& stream, Operation op) override {
    return session_->Issue(*member_, stream, std::move(op));
  }

  const std::shared_ptr<Session> session_;
  const std::shared_ptr<Member> member_;
};

}  // namespace

std::unique_ptr<Communicator> MakeCommunicator(std::shared_ptr<Session> session,
                                               std::shared_ptr<Member> member) {
  return std::make_unique<NcclCommunicator>(std::move(session), std::move(member));
}

}  // namespace weft::collectives::nccl
