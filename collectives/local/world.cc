#include "collectives/local/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "collectives/local/group.h"
#include "collectives/member.h"
#include "collectives/membership.h"

namespace weft::collectives::local {

World::World(const LocalTransportOptions& options, Clock& clock)
    : clock_(clock),
      deadline_(options.deadline),
      size_(options.topology.grid.size()),
      links_(options.topology),
      ranks_(size_) {}

Nanos World::WaitLimit(Nanos begin) const {
  return std::max(begin, links_.latest_end()) + BoundedNanos(deadline_);
}

std::shared_ptr<World::Meeting> World::FindMeeting(const std::string& name, int rank,
                                                   const std::vector<int>& world_ranks) {
  for (const std::shared_ptr<Meeting>& meeting : meetings_) {
    if (meeting->name != name || meeting->failure) continue;
    const auto expects = [&](int r) {
      return std::binary_search(meeting->world_ranks.begin(), meeting->world_ranks.end(), r);
    };
    if (std::none_of(world_ranks.begin(), world_ranks.end(), expects)) continue;
    if (meeting->world_ranks != world_ranks) {
      const int other = *meeting->arrived.begin();
      meeting->failure =
          Failure{absl::StatusCode::kInvalidArgument, -1,
                  absl::StrCat("its members disagree: rank ", other, " created it with ranks {",
                               absl::StrJoin(meeting->world_ranks, ", "), "}, rank ", rank,
                               " with {", absl::StrJoin(world_ranks, ", "), "}")};
    }
    return meeting;
  }
  auto meeting = std::make_shared<Meeting>();
  meeting->name = name;
  meeting->world_ranks = world_ranks;
  meetings_.push_back(meeting);
  return meeting;
}

void World::Forget(const Meeting& meeting) {
  std::erase_if(meetings_, [&](const auto& kept) { return kept.get() == &meeting; });
}

absl::StatusOr<std::shared_ptr<Group>> World::Join(int rank, const std::string& name,
                                                   const std::vector<int>& world_ranks) {
  WEFT_RETURN_IF_ERROR(CheckNewCommunicator(name, world_ranks, rank, size_));
  std::unique_lock<std::mutex> lock(mutex_);
  if (ranks_[rank].ended) return AsSeenBy(*ranks_[rank].ended, name, rank);
  if (!ranks_[rank].names.insert(name).second) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " already had a communicator named '", name, "'"));
  }
  const std::shared_ptr<Meeting> meeting = FindMeeting(name, rank, world_ranks);
  meeting->arrived.insert(rank);
  if (!meeting->failure && meeting->arrived.size() == world_ranks.size()) {
    meeting->group = std::make_shared<Group>(*this, name, world_ranks);
    for (const int member : world_ranks) {
      std::erase_if(ranks_[member].groups, [](const auto& group) { return group.expired(); });
      ranks_[member].groups.push_back(meeting->group);
    }
  }
  changed_.notify_all();
  const Nanos begin = clock_.Now();
  while (!meeting->group && !meeting->failure) {
    std::vector<int> missing;
    for (const int member : world_ranks) {
      if (meeting->arrived.count(member) == 0) missing.push_back(member);
    }
    for (const int member : world_ranks) {
      if (ranks_[member].ended) meeting->failure = ranks_[member].ended;
    }
    if (meeting->failure) break;
    // Emulated operations of the peers may keep them from coming, as in any other wait.
    const Nanos limit = WaitLimit(begin);
    if (!clock_.WaitUntil(changed_, lock, limit) && clock_.Now() >= WaitLimit(begin) &&
        !meeting->group && !meeting->failure && meeting->arrived.size() < world_ranks.size()) {
      meeting->failure = WaitedFor(rank, deadline_, missing, "its creation");
    }
  }
  Forget(*meeting);
  changed_.notify_all();
  if (meeting->failure) return AsSeenBy(*meeting->failure, name, rank);
  return meeting->group;
}

std::vector<std::shared_ptr<Group>> World::End(int rank, Failure failure) {
  std::vector<std::shared_ptr<Group>> groups;
  const std::lock_guard<std::mutex> lock(mutex_);
  RankState& state = ranks_[rank];
  if (state.ended) return groups;
  state.ended = std::move(failure);
  for (const std::weak_ptr<Group>& weak : state.groups) {
    if (std::shared_ptr<Group> group = weak.lock()) groups.push_back(std::move(group));
  }
  changed_.notify_all();
  return groups;
}

void World::Abort(int rank, const absl::Status& cause) {
  const Failure failure = AbortedBy(rank, cause);
  {
    // A rank without communicators has failed too, and its peers' meetings with it will.
    const std::lock_guard<std::mutex> lock(mutex_);
    ranks_[rank].failed = true;
    if (!first_failure_) first_failure_.emplace(failure, std::string());
  }
  for (const std::shared_ptr<Group>& group : End(rank, failure)) group->Kill(failure);
}

void World::Leave(int rank) {
  const Failure failure{absl::StatusCode::kUnavailable, rank, "has left"};
  for (const std::shared_ptr<Group>& group : End(rank, failure)) group->Leave(rank);
}

void World::NoteFailure(const Failure& failure, const std::string& communicator,
                        const std::vector<int>& world_ranks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!first_failure_) first_failure_.emplace(failure, communicator);
  for (const int rank : world_ranks) ranks_[rank].failed = true;
}

absl::Status World::FailureOf(int rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!ranks_[rank].failed || !first_failure_) return absl::OkStatus();
  const auto& [failure, communicator] = *first_failure_;
  if (!communicator.empty()) return AsSeenBy(failure, communicator, rank);
  return absl::Status(failure.code, absl::StrCat("rank ", failure.rank, " ", failure.what));
}

void World::SetWaiting(int rank, std::vector<int> missing, std::string operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ranks_[rank].waits_for = std::move(missing);
  ranks_[rank].waits_in = std::move(operation);
}

void World::ClearWaiting(int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ranks_[rank].waits_for.clear();
}

std::string World::WhyMissing(const std::vector<int>& missing) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  std::set<int> seen;
  const std::vector<int>* at = &missing;
  while (at != nullptr) {
    const std::vector<int>* next = nullptr;
    for (const int rank : *at) {
      const RankState& state = ranks_[rank];
      if (state.waits_for.empty() || !seen.insert(rank).second) continue;
      absl::StrAppend(&text, "; rank ", rank, " itself waits for ", RankList(state.waits_for),
                      " in ", state.waits_in);
      next = &state.waits_for;
      break;
    }
    at = next;
  }
  return text;
}

}  // namespace weft::collectives::local
