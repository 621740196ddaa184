#include "collectives/local/transport.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/local/group.h"
#include "collectives/local/world.h"
#include "collectives/member.h"
#include "collectives/queued_communicator.h"

namespace weft::collectives::local {
namespace {

class LocalMember final : public Member {
 public:
  LocalMember(Membership membership, std::shared_ptr<World> world, std::shared_ptr<Group> group)
      : Member(std::move(membership), world->clock(), world->deadline()),
        world_(std::move(world)),
        group_(std::move(group)) {
    group_->SetMember(this->membership().rank, this);
  }

  ~LocalMember() override {
    group_->SetMember(membership().rank, nullptr);
    group_->Leave(membership().world_rank());
  }

 protected:
  absl::Status Run(const Operation& op) override {
    return group_->Run(membership().rank, sequence_++, op);
  }

  void Fail(const Failure& failure) override { group_->Kill(failure); }

  Nanos WaitLimit(Nanos begin) const override { return world_->WaitLimit(begin); }

 private:
  const std::shared_ptr<World> world_;  // outlives the group
  const std::shared_ptr<Group> group_;
  std::int64_t sequence_ = 0;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}
  ~LocalTransport() override { world_->Leave(rank_); }

  std::string_view kind() const override { return "local"; }
  int rank() const override { return rank_; }
  int size() const override { return world_->size(); }

  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      std::string name, std::vector<int> world_ranks) override {
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Group> group, world_->Join(rank_, name, world_ranks));
    Membership membership{std::move(name), 0, std::move(world_ranks)};
    while (membership.world_rank() != rank_) ++membership.rank;
    return MakeCommunicator(
        std::make_shared<LocalMember>(std::move(membership), world_, std::move(group)));
  }

  void Abort(const absl::Status& cause) override {
    WEFT_CHECK(!cause.ok()) << "an abort needs a cause";
    world_->Abort(rank_, cause);
  }

  absl::Status failure() override { return world_->FailureOf(rank_); }

 private:
  const std::shared_ptr<World> world_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> CreateTransports(const LocalTransportOptions& options) {
  Clock& clock = options.clock != nullptr ? *options.clock : Clock::Steady();
  const auto world = std::make_shared<World>(options, clock);
  std::vector<std::unique_ptr<Transport>> transports;
  transports.reserve(world->size());
  for (int rank = 0; rank < world->size(); ++rank) {
    transports.push_back(std::make_unique<LocalTransport>(world, rank));
  }
  return transports;
}

}  // namespace weft::collectives::local
