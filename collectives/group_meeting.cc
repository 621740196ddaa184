#include "collectives/group_meeting.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace weft::collectives {

GroupMeeting::GroupMeeting(StoreSession& session, const Membership& membership)
    : session_(session),
      membership_(membership),
      limit_(session.WaitLimit()),
      key_(absl::StrCat("group.", EscapedName(membership.name), ".")) {}

absl::StatusOr<std::vector<std::string>> GroupMeeting::Exchange(
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
      if (got[r] && stop && stop(*got[r])) return true;
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

absl::Status GroupMeeting::CheckSameMembers() {
  // Whoever disagrees may also wait for somebody who never comes, so this ends at the first.
  const std::string own_list = absl::StrJoin(membership_.world_ranks, ", ");
  WEFT_ASSIGN_OR_RETURN(
      std::vector<std::string> lists,
      Exchange("members", own_list, [&](const std::string& list) { return list != own_list; }));
  for (int r = 0; r < membership_.size(); ++r) {
    // Empty: did not come before somebody else was seen to disagree.
    if (lists[r].empty() || lists[r] == own_list) continue;
    lists[membership_.rank] = own_list;
    // Told in rank order, so that both sides tell the same.
    const int a = std::min(r, membership_.rank);
    const int b = std::max(r, membership_.rank);
    return Fail({absl::StatusCode::kInvalidArgument, -1,
                 absl::StrCat("its members disagree: rank ", membership_.world_ranks[a],
                              " created it with ranks {", lists[a], "}, rank ",
                              membership_.world_ranks[b], " with {", lists[b], "}")});
  }
  return absl::OkStatus();
}

bool GroupMeeting::IsGone(int peer) const {
  const std::optional<Post> post = session_.PostOf(peer);
  return post && post->communicator.empty();
}

absl::Status GroupMeeting::Gone(int peer) const {
  const std::optional<Post> post = session_.PostOf(peer);
  if (post) return Fail(post->failure);
  return Fail({absl::StatusCode::kUnavailable, peer, "has left"});
}

absl::Status GroupMeeting::NotMet(const std::vector<std::optional<std::string>>& got) const {
  if (const std::optional<Post> ended = session_.ended()) return Fail(ended->failure);
  std::vector<int> missing;
  for (int r = 0; r < membership_.size(); ++r) {
    if (!got[r]) missing.push_back(membership_.world_ranks[r]);
  }
  return Waited(missing);
}

absl::Status GroupMeeting::Waited(const std::vector<int>& missing) const {
  const std::string operation = "its creation";
  return Suspect({PostKind::kSuspect, missing.front(), membership_.name,
                  WaitedFor(membership_.world_rank(), session_.deadline(), missing, operation),
                  missing, operation});
}

absl::Status GroupMeeting::Suspect(const Post& post) const {
  session_.Report(post);
  return Tell(session_.Story(), membership_);
}

absl::Status GroupMeeting::Fail(const Failure& failure) const {
  return AsSeenBy(failure, membership_.name, membership_.world_rank());
}

}  // namespace weft::collectives
