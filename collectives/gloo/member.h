// One rank's side of a communicator over TCP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/gloo/session.h"
#include "collectives/gloo/wire.h"
#include "collectives/member.h"

namespace weft::collectives::gloo {

// Every operation begins with an exchange of what each member is about to do, so that no message
// ever meets memory of another size.
class GlooMember final : public Member {
 public:
  GlooMember(Membership membership, std::shared_ptr<Session> session,
             std::unique_ptr<Connections> connections);
  ~GlooMember() override;

  // This rank has aborted or left: the communicator is dead for the reason given, its connections
  // are closed.
  void End(const Post& why);
  // World rank `peer` has aborted: if it is a member, the communicator is dead.
  void PeerAborted(int peer);

 protected:
  absl::Status Run(const Operation& op) override;
  void Fail(const Failure& failure) override;

 private:
  absl::Status Die(const Operation& op, const Wire::Trouble& trouble);
  absl::Status DieOf(const Post& own);
  void Close();

  const std::shared_ptr<Session> session_;

  std::mutex mutex_;
  bool running_ = false;
  std::shared_ptr<Connections> connections_;  // null once closed

  std::uint64_t sequence_ = 0;
  std::vector<std::byte> scratch_;  // grows to the largest operation
};

}  // namespace weft::collectives::gloo
