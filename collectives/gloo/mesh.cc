#include "collectives/gloo/mesh.h"

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/gloo/quiet_pipe.h"

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

class Meeting {
 public:
  Meeting(Session& session, const Membership& membership)
      : session_(session),
        membership_(membership),
        limit_(session.WaitLimit()),
        key_(absl::StrCat("group.", EscapedName(membership.name), ".")) {}

  // Posts `contents` for `what` and collects what the other members posted, by group rank; stops
  // early at a text for which `stop` is true, with empty texts for those that have not come.
  absl::StatusOr<std::vector<std::string>> Exchange(
      const std::string& what, const std::string& contents,
      const std::function<bool(const std::string&)>& stop) {
    const std::string prefix = absl::StrCat(key_, what, ".");
    WEFT_RETURN_IF_ERROR(
        session_.store().Post(absl::StrCat(prefix, membership_.world_rank()), contents));
    std::vector<std::optional<std::string>> got(membership_.size());
    int gone = -1;
    const bool met = session_.Poll(limit_, [&] {
      bool all = true;
      for (int r = 0; r < membership_.size(); ++r) {
        const int peer = membership_.world_ranks[r];
        if (!got[r]) got[r] = session_.store().Read(absl::StrCat(prefix, peer));
        if (got[r] && stop(*got[r])) return true;
        if (got[r]) continue;
        all = false;
        if (IsGone(peer)) gone = r;
      }
      return all || gone >= 0;
    });
    if (gone >= 0) return Gone(membership_.world_ranks[gone]);
    if (!met) return NotMet(got);
    std::vector<std::string> all;
    all.reserve(got.size());
    for (auto& text : got) all.push_back(std::move(text).value_or(""));
    return all;
  }

  // Connects to all peers, by group rank. Ends when a member has gone and at the deadline, which
  // gloo's connecting itself would not notice.
  absl::Status ConnectAll(MeshContext& context, const std::vector<std::string>& addresses) {
    const std::vector<int>& ranks = membership_.world_ranks;
    std::atomic<bool> stopped = false;
    std::atomic<int> gone = -1;
    const auto look_around = [&](bool ended) {
      for (const int peer : ranks) {
        if (peer != membership_.world_rank() && IsGone(peer)) gone = peer;
      }
      if (!ended && gone < 0 && session_.clock().Now() < limit_) return;
      if (!stopped.exchange(true)) context.closeConnections();
    };
    std::optional<int> to;
    std::string text;
    try {
      const Session::Watched watched(session_, look_around);
      for (int peer = 0; peer < membership_.size() && !stopped; ++peer) {
        if (peer == membership_.rank) continue;
        to = ranks[peer];
        context.ConnectTo(peer, addresses[peer]);
      }
      if (!stopped) return absl::OkStatus();
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (gone >= 0) return Gone(gone);
    if (const std::optional<Post> ended = session_.ended()) return Fail(ended->failure);
    if (stopped) return Waited({to.value_or(membership_.world_rank())});
    return Suspect({PostKind::kSuspect,
                    *to,
                    membership_.name,
                    {absl::StatusCode::kUnavailable, membership_.world_rank(),
                     absl::StrCat("could not connect to rank ", *to, " (", text, ")")}});
  }

  absl::Status Fail(const Failure& failure) const {
    return AsSeenBy(failure, membership_.name, membership_.world_rank());
  }

 private:
  // Whether world rank `peer` has aborted or left.
  bool IsGone(int peer) const {
    const std::optional<Post> post = session_.PostOf(peer);
    return post && post->communicator.empty();
  }

  absl::Status Gone(int peer) const {
    const std::optional<Post> post = session_.PostOf(peer);
    if (post) return Fail(post->failure);
    return Fail({absl::StatusCode::kUnavailable, peer, "has left"});
  }

  absl::Status NotMet(const std::vector<std::optional<std::string>>& got) const {
    if (const std::optional<Post> ended = session_.ended()) return Fail(ended->failure);
    std::vector<int> missing;
    for (int r = 0; r < membership_.size(); ++r) {
      if (!got[r]) missing.push_back(membership_.world_ranks[r]);
    }
    return Waited(missing);
  }

  absl::Status Waited(const std::vector<int>& missing) const {
    const std::string operation = "its creation";
    return Suspect({PostKind::kSuspect, missing.front(), membership_.name,
                    WaitedFor(membership_.world_rank(), session_.deadline(), missing, operation),
                    missing, operation});
  }

  // The suspect may itself be waiting for another: what all ranks suspect tells who is at fault.
  absl::Status Suspect(const Post& post) const {
    session_.Report(post);
    return Tell(session_.Story(), membership_);
  }

  Session& session_;
  const Membership& membership_;
  const Nanos limit_;
  const std::string key_;
};

absl::Status CheckSameMembers(const Membership& membership, const std::string& own_list,
                              std::vector<std::string> lists, const Meeting& meeting) {
  for (int r = 0; r < membership.size(); ++r) {
    // Empty: did not come before somebody else was seen to disagree.
    if (lists[r].empty() || lists[r] == own_list) continue;
    lists[membership.rank] = own_list;
    // Told in rank order, so that both sides tell the same.
    const int a = std::min(r, membership.rank);
    const int b = std::max(r, membership.rank);
    return meeting.Fail({absl::StatusCode::kInvalidArgument, -1,
                         absl::StrCat("its members disagree: rank ", membership.world_ranks[a],
                                      " created it with ranks {", lists[a], "}, rank ",
                                      membership.world_ranks[b], " with {", lists[b], "}")});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connections>> Connect(Session& session,
                                                     const Membership& membership) {
  const int size = membership.size();
  if (size == 1) return std::make_unique<Connections>(nullptr, 0, 1);
  Meeting meeting(session, membership);
  // Whoever disagrees may also wait for somebody who never comes, so this ends at the first.
  const std::string own_list = absl::StrJoin(membership.world_ranks, ", ");
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> lists,
                        meeting.Exchange("members", own_list, [&](const std::string& list) {
                          return list != own_list;
                        }));
  WEFT_RETURN_IF_ERROR(CheckSameMembers(membership, own_list, std::move(lists), meeting));

  const QuietPipe quiet;
  try {
    auto context = std::make_shared<MeshContext>(session, membership.rank, size);
    const std::string own = context->Listen();
    WEFT_ASSIGN_OR_RETURN(
        std::vector<std::string> addresses,
        meeting.Exchange("address", own, [](const std::string&) { return false; }));
    WEFT_RETURN_IF_ERROR(meeting.ConnectAll(*context, addresses));
    return std::make_unique<Connections>(std::move(context), membership.rank, size);
  } catch (const std::exception& error) {
    return meeting.Fail({absl::StatusCode::kUnavailable, membership.world_rank(),
                         absl::StrCat("could not listen (", error.what(), ")")});
  }
}

}  // namespace weft::collectives::gloo
