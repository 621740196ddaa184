#include "collectives/store_session.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/member.h"

namespace weft::collectives {
namespace {

constexpr Nanos kMillisecond = 1'000'000;
constexpr Nanos kFilePoll = 5 * kMillisecond;
constexpr Nanos kStoryTime = 2'000 * kMillisecond;

// Tells this run's files from those of an earlier run.
std::string Nonce() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x", device(), device(), device());
}

}  // namespace

StoreSession::StoreSession(const StoreSessionOptions& options)
    : options_(options), store_(options.store), board_(store_, options.size) {}

absl::Status StoreSession::Check(int rank, int size, const std::string& store) {
  if (size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("size is ", size, ", not >= 1"));
  }
  if (rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not in a world of ", size));
  }
  return Store(store).Check();
}

Nanos StoreSession::WaitLimit() const { return clock().Now() + BoundedNanos(deadline()); }

// Every rank posts "here"; rank 0, when it has seen all, posts the list of what it saw as "run". A
// rank that does not find its own entry in "run" has met the files of an earlier run.
absl::Status StoreSession::MeetAll() {
  const auto here = [](int rank) { return absl::StrCat("here.", rank); };
  absl::Status leftovers = absl::FailedPreconditionError(
      absl::StrCat("store '", store_.described(),
                   "' holds files of an earlier run; every run needs an empty one"));
  const std::string entry = absl::StrCat(options_.size, " ", Nonce());
  absl::Status posted;
  Poll(WaitLimit(), [&] {
    posted = store_.Post(here(rank()), entry);
    return !store_.is_served() ||
           !absl::IsUnavailable(posted);  // a server may come later than its clients
  });
  if (absl::IsAlreadyExists(posted)) return leftovers;
  WEFT_RETURN_IF_ERROR(posted);
  if (rank() == 0 && store_.Read("run")) return leftovers;

  std::vector<std::optional<std::string>> entries(size());
  std::optional<std::string> run;
  const bool met = Poll(WaitLimit(), [&] {
    bool all = true;
    for (int r = 0; r < size(); ++r) {
      if (!entries[r]) entries[r] = store_.Read(here(r));
      all = all && entries[r];
    }
    if (rank() == 0) return all;
    run = store_.Read("run");
    return run.has_value();
  });
  if (!met) {
    std::vector<int> missing;
    for (int r = 0; r < size(); ++r) {
      if (!entries[r]) missing.push_back(r);
    }
    if (missing.empty()) missing.push_back(0);
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", rank(), " waited ", absl::FormatDuration(deadline()), " for ",
                     RankList(missing), " to come to store '", store_.described(), "'"));
  }
  if (rank() == 0) {
    run.emplace();
    for (const auto& seen : entries) absl::StrAppend(&*run, *seen, "\n");
    posted = store_.Post("run", *run);
    if (absl::IsAlreadyExists(posted)) return leftovers;
    WEFT_RETURN_IF_ERROR(posted);
  }
  const std::vector<std::string> lines = absl::StrSplit(*run, '\n', absl::SkipEmpty());
  const std::string size_text = absl::StrCat(size(), " ");
  for (int r = 0; r < static_cast<int>(lines.size()); ++r) {
    if (lines[r].compare(0, size_text.size(), size_text) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank(), " was started in a world of ",
                                                     size(), ", rank ", r, " in one of ",
                                                     lines[r].substr(0, lines[r].find(' '))));
    }
  }
  if (rank() >= static_cast<int>(lines.size()) || lines[rank()] != entry) return leftovers;
  return absl::OkStatus();
}

absl::StatusOr<Membership> StoreSession::NewMembership(std::string name,
                                                       std::vector<int> world_ranks) {
  WEFT_RETURN_IF_ERROR(CheckNewCommunicator(name, world_ranks, rank(), size()));
  if (const std::optional<Post> ended = this->ended()) {
    return AsSeenBy(ended->failure, name, rank());
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!names_.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank(), " already had a communicator named '", name, "'"));
    }
  }
  Membership membership{std::move(name), 0, std::move(world_ranks)};
  while (membership.world_rank() != rank()) ++membership.rank;
  return membership;
}

bool StoreSession::Poll(Nanos limit, const std::function<bool()>& done) {
  for (;;) {
    if (done()) return true;
    std::unique_lock<std::mutex> lock(mutex_);
    const Nanos now = clock().Now();
    if (ended_ || now >= limit) return false;
    clock().WaitUntil(changed_, lock, std::min(limit, now + kFilePoll));
  }
}

void StoreSession::Report(const Post& post) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(reported_, true)) return;
  }
  board_.Write(rank(), post);
}

Post StoreSession::Story() {
  const Nanos limit = clock().Now() + std::min(kStoryTime, BoundedNanos(deadline()));
  for (;;) {
    const Posts posts = board_.ReadAll();
    std::unique_lock<std::mutex> lock(mutex_);
    if (story_) return *story_;
    const Nanos now = clock().Now();
    story_ = RootCause(posts, now >= limit, deadline());
    if (!story_ && now >= limit) story_ = posts[rank()];
    if (!story_ && now >= limit) {
      story_ = Post{PostKind::kLearned,
                    -1,
                    "",
                    {absl::StatusCode::kUnavailable, -1, "the store's board cannot be read"}};
    }
    if (story_) return *story_;
    clock().WaitUntil(changed_, lock, std::min(limit, now + kFilePoll));
  }
}

std::optional<Post> StoreSession::ended() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ended_;
}

bool StoreSession::SetEnded(const Post& post) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return false;
    ended_ = post;
  }
  changed_.notify_all();
  return true;
}

absl::Status StoreSession::failure() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!reported_) return absl::OkStatus();
  }
  const Post story = Story();
  if (!story.communicator.empty()) return AsSeenBy(story.failure, story.communicator, rank());
  return absl::Status(story.failure.code,
                      absl::StrCat("rank ", story.failure.rank, " ", story.failure.what));
}

}  // namespace weft::collectives
