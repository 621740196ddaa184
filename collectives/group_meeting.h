// How the members of a new communicator meet in the store.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/board.h"
#include "collectives/failure.h"
#include "collectives/membership.h"
#include "collectives/store_session.h"
#include "weft/clock.h"

namespace weft::collectives {

// One member's side. Every wait ends at one deadline, which runs from the construction, and when a
// member has aborted or left; the error names who has not come or has gone.
class GroupMeeting {
 public:
  GroupMeeting(StoreSession& session, const Membership& membership);

  // Posts `contents` for `what` and collects what the other members posted, by group rank; stops
  // early at a text for which `stop` is true, with empty texts for those that have not come.
  absl::StatusOr<std::vector<std::string>> Exchange(
      const std::string& what, const std::string& contents,
      const std::function<bool(const std::string&)>& stop = nullptr);

  // InvalidArgument naming two members that create the communicator with different groups.
  absl::Status CheckSameMembers();

  Nanos limit() const { return limit_; }
  // Whether world rank `peer` has aborted or left.
  bool IsGone(int peer) const;
  absl::Status Gone(int peer) const;
  // Posts that `missing` (world ranks) have not come by the deadline.
  absl::Status Waited(const std::vector<int>& missing) const;
  // Posts the suspicion. The suspect may itself be waiting for another: what all ranks suspect
  // tells who is at fault.
  absl::Status Suspect(const Post& post) const;
  absl::Status Fail(const Failure& failure) const;

 private:
  absl::Status NotMet(const std::vector<std::optional<std::string>>& got) const;

  StoreSession& session_;
  const Membership& membership_;
  const Nanos limit_;
  const std::string key_;
};

}  // namespace weft::collectives
