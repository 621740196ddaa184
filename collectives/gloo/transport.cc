#include "collectives/gloo/transport.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/gloo/member.h"
#include "collectives/gloo/mesh.h"
#include "collectives/gloo/session.h"
#include "collectives/queued_communicator.h"

namespace weft::collectives::gloo {
namespace {

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  ~GlooTransport() override { session_->Leave(); }

  std::string_view kind() const override { return "gloo"; }
  int rank() const override { return session_->rank(); }
  int size() const override { return session_->size(); }

  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      std::string name, std::vector<int> world_ranks) override {
    WEFT_ASSIGN_OR_RETURN(Membership membership,
                          session_->NewMembership(std::move(name), std::move(world_ranks)));
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Connections> connections, Connect(*session_, membership));
    auto member =
        std::make_shared<GlooMember>(std::move(membership), session_, std::move(connections));
    session_->Add(member);
    // An abort that came during the creation did not find the member.
    if (const std::optional<Post> ended = session_->ended()) member->End(*ended);
    return MakeCommunicator(std::move(member));
  }

  void Abort(const absl::Status& cause) override {
    WEFT_CHECK(!cause.ok()) << "an abort needs a cause";
    session_->Abort(cause);
  }

  absl::Status failure() override { return session_->failure(); }

 private:
  const std::shared_ptr<Session> session_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(const GlooTransportOptions& options) {
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, Session::Open(options));
  return std::make_unique<GlooTransport>(std::move(session));
}

}  // namespace weft::collectives::gloo
