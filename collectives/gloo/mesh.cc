#include "collectives/gloo/mesh.h"

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/gloo/quiet_pipe.h"
#include "collectives/group_meeting.h"

namespace weft::collectives::gloo {
namespace {

// Longer than any deadline in use: gloo's own timeout would end a wait without saying for whom.
constexpr std::chrono::hours kNever(24);

// A full mesh whose connections are made one by one, so that the peer at fault is known.
class MeshContext final : public ::gloo::Context {
 public:
  MeshContext(Session& session, int group_rank, int group_size)
      : ::gloo::Context(group_rank, group_size) {
    device_ = session.device();
    transportContext_ = device_->createContext(group_rank, group_size);
  }

  // The address at which `peer` reaches this rank, for every peer.
  std::string Listen() {
    transportContext_->setTimeout(kNever);
    std::string addresses;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const std::vector<char> bytes = transportContext_->createPair(peer)->address().bytes();
      addresses.append(bytes.begin(), bytes.end());
    }
    return addresses;
  }

  void ConnectTo(int peer, const std::string& addresses) {
    const std::size_t each = addresses.size() / static_cast<std::size_t>(size - 1);
    const std::size_t place = rank > peer ? rank - 1 : rank;
    const auto begin = addresses.begin() + static_cast<std::ptrdiff_t>(place * each);
    transportContext_->getPair(peer)->connect(
        std::vector<char>(begin, begin + static_cast<std::ptrdiff_t>(each)));
  }
};

// Connects to all peers, by group rank. Ends when a member has gone and at the deadline, which
// gloo's connecting itself would not notice.
absl::Status ConnectAll(Session& session, const Membership& membership, const GroupMeeting& meeting,
                        MeshContext& context, const std::vector<std::string>& addresses) {
  const std::vector<int>& ranks = membership.world_ranks;
  std::atomic<bool> stopped = false;
  std::atomic<int> gone = -1;
  const auto look_around = [&](bool ended) {
    for (const int peer : ranks) {
      if (peer != membership.world_rank() && meeting.IsGone(peer)) gone = peer;
    }
    if (!ended && gone < 0 && session.clock().Now() < meeting.limit()) return;
    if (!stopped.exchange(true)) context.closeConnections();
  };
  std::optional<int> to;
  std::string text;
  try {
    const Session::Watched watched(session, look_around);
    for (int peer = 0; peer < membership.size() && !stopped; ++peer) {
      if (peer == membership.rank) continue;
      to = ranks[peer];
      context.ConnectTo(peer, addresses[peer]);
    }
    if (!stopped) return absl::OkStatus();
  } catch (const std::exception& error) {
    text = error.what();
  }
  if (gone >= 0) return meeting.Gone(gone);
  if (const std::optional<Post> ended = session.ended()) return meeting.Fail(ended->failure);
  if (stopped) return meeting.Waited({to.value_or(membership.world_rank())});
  return meeting.Suspect({PostKind::kSuspect,
                          *to,
                          membership.name,
                          {absl::StatusCode::kUnavailable, membership.world_rank(),
                           absl::StrCat("could not connect to rank ", *to, " (", text, ")")}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connections>> Connect(Session& session,
                                                     const Membership& membership) {
  const int size = membership.size();
  if (size == 1) return std::make_unique<Connections>(nullptr, 0, 1);
  GroupMeeting meeting(session, membership);
  WEFT_RETURN_IF_ERROR(meeting.CheckSameMembers());

  const QuietPipe quiet;
  try {
    auto context = std::make_shared<MeshContext>(session, membership.rank, size);
    const std::string own = context->Listen();
    WEFT_ASSIGN_OR_RETURN(std::vector<std::string> addresses, meeting.Exchange("address", own));
    WEFT_RETURN_IF_ERROR(ConnectAll(session, membership, meeting, *context, addresses));
    return std::make_unique<Connections>(std::move(context), membership.rank, size);
  } catch (const std::exception& error) {
    return meeting.Fail({absl::StatusCode::kUnavailable, membership.world_rank(),
                         absl::StrCat("could not listen (", error.what(), ")")});
  }
}

}  // namespace weft::collectives::gloo
