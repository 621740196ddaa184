// The thread that watches over what is under way, and the end of a session.
#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "collectives/failure.h"
#include "collectives/member.h"
#include "collectives/nccl/session.h"
#include "collectives/nccl/status.h"
#include "device/cuda/guards.h"

namespace weft::collectives::nccl {
namespace {

constexpr Nanos kMillisecond = 1'000'000;
// Of real time, since the device moves when the session's clock does not.
constexpr Nanos kRound = 10 * kMillisecond;
constexpr Nanos kStoryPoll = 2 * kMillisecond;
constexpr Nanos kAlarmPoll = 100 * kMillisecond;
// What peers get to tell theirs, of the session's clock and, since they look at the store by that,
// of real time.
constexpr Nanos kStoryTime = 1'000 * kMillisecond;
constexpr Nanos kAnswerTime = 5 * kAlarmPoll;
// Of the session's clock: what NCCL gets to drain what is revoked.
constexpr Nanos kDrainTime = 1'000 * kMillisecond;
// How long a collective is waited in before peers are looked at.
constexpr Nanos kPatience = 500 * kMillisecond;

std::string NoteName(int rank) { return absl::StrCat("note.", rank); }

// NCCL 2.28.7 and later; null before.
using RevokeCall = ncclResult_t (*)(ncclComm_t, int);
RevokeCall Revoke() {
  return reinterpret_cast<RevokeCall>(::dlsym(RTLD_DEFAULT, "ncclCommRevoke"));
}

bool InProgress(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  return ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress;
}

}  // namespace

void Session::Watch() {
  base::NameThread("weft watchdog");
  const device::CudaDevice::Current current(device_);
  const device::BesideCaptures beside_captures;
  Clock& steady = Clock::Steady();
  Nanos next_alarm = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (posted_ && !aborted_) {
      lock.unlock();
      AbortAll();
      lock.lock();
      aborted_ = true;
      changed_.notify_all();
      continue;
    }
    if (stop_) break;
    if (!ending_) {
      lock.unlock();
      Look();
      if (!ending_ && steady.Now() >= next_alarm) {
        if (store().Read("alarm")) FindStory(std::nullopt);
        next_alarm = steady.Now() + kAlarmPoll;
      }
      lock.lock();
      if (ending_) continue;
    }
    const bool idle = ending_ || std::all_of(members_.begin(), members_.end(),
                                             [](const auto& m) { return m->under_way.empty(); });
    (void)steady.WaitUntil(changed_, lock, steady.Now() + (idle ? kAlarmPoll : kRound));
  }
  watch_ended_ = true;
  changed_.notify_all();
}

void Session::Look() {
  absl::Status error;
  bool late = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::shared_ptr<Member>& member : members_) {
      Advance(*member, &error);
      late |= IsLate(*member);
    }
  }
  if (!error.ok()) {
    return Fail({PostKind::kCause, -1, "", AbortedBy(rank(), error)});
  }
  const std::optional<Reported> reported = AsyncError();
  // A peer's end has its reason there; anything else is this rank's own.
  if (reported && !absl::IsUnavailable(reported->status)) {
    return Fail({PostKind::kCause,
                 -1,
                 reported->communicator,
                 {reported->status.code(), rank(), std::string(reported->status.message())}});
  }
  if (late || reported || HasLostAPeer()) FindStory(reported);
}

void Session::Advance(Member& member, absl::Status* error) {
  while (!member.under_way.empty()) {
    UnderWay& front = member.under_way.front();
    const absl::StatusOr<bool> over = front.end->Reached();
    if (!over.ok()) return error->Update(over.status());
    if (!*over) {
      if (front.begun) return;
      const absl::StatusOr<bool> begun = front.begin->Reached();
      if (begun.ok() && *begun) front.begun = clock().Now();
      return;
    }
    member.under_way.pop_front();
    ++member.finished;
  }
}

bool Session::IsLate(const Member& member) const {
  if (member.under_way.empty() || !member.under_way.front().begun) return false;
  return clock().Now() - *member.under_way.front().begun >= BoundedNanos(deadline());
}

bool Session::HasLostAPeer() {
  struct Doubt {
    const Membership* membership;
    std::int64_t sequence;
  };
  std::vector<std::shared_ptr<Member>> members = Members();
  std::vector<Doubt> doubts;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::shared_ptr<Member>& member : members) {
      if (member->under_way.empty() || !member->under_way.front().begun) continue;
      if (clock().Now() - *member->under_way.front().begun < kPatience) continue;
      doubts.push_back({&member->membership, member->finished});
    }
  }
  return std::any_of(doubts.begin(), doubts.end(), [&](const Doubt& doubt) {
    const std::vector<int>& ranks = doubt.membership->world_ranks;
    return std::any_of(ranks.begin(), ranks.end(), [&](int peer) {
      const std::optional<std::int64_t> count = ClosedCountOf(doubt.membership->name, peer);
      return count && *count <= doubt.sequence;
    });
  });
}

std::optional<Session::Reported> Session::AsyncError() {
  const std::unique_lock<std::mutex> calls(calls_, std::try_to_lock);
  if (!calls.owns_lock()) return std::nullopt;
  for (const std::shared_ptr<Member>& member : Members()) {
    if (member->comm == nullptr) continue;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(member->comm, &state);
    absl::Status status =
        NcclStatus(asked != ncclSuccess ? asked : state, "a collective under way");
    if (!status.ok()) return Reported{member->membership.name, std::move(status)};
  }
  return std::nullopt;
}

void Session::FindStory(const std::optional<Reported>& reported) {
  if (ending_.exchange(true)) return;
  Note note = OwnNote();
  if (reported) {
    note.error = std::string(reported->status.message());
    note.error_communicator = reported->communicator;
  }
  store().Post(NoteName(rank()), Encode(note)).IgnoreError();
  store().Post("alarm", "").IgnoreError();
  const Nanos limit = clock().Now() + std::min(kStoryTime, BoundedNanos(deadline()));
  std::optional<Post> story = StoryFromStore(false);
  Clock& steady = Clock::Steady();
  const Nanos answered = steady.Now() + kAnswerTime;
  while (!story) {
    const bool final = clock().Now() >= limit && steady.Now() >= answered;
    story = StoryFromStore(final);
    std::unique_lock<std::mutex> lock(mutex_);
    if (end_) return;
    if (!story) (void)steady.WaitUntil(changed_, lock, steady.Now() + kStoryPoll);
  }
  if (!SetStory(*story)) return;
  story->kind = PostKind::kLearned;
  Report(*story);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    posted_ = true;
  }
}

std::optional<Post> Session::StoryFromStore(bool final) {
  const Posts posts = board().ReadAll();
  for (const std::optional<Post>& post : posts) {
    if (post && post->kind == PostKind::kCause) return post;
  }
  // Who waited in vain for the creation of a communicator.
  for (const std::optional<Post>& post : posts) {
    if (post && post->kind == PostKind::kSuspect) return StoreSession::Story();
  }
  Notes notes(size());
  bool all = true;
  for (int r = 0; r < size(); ++r) {
    if (const std::optional<std::string> text = store().Read(NoteName(r))) notes[r] = Decode(*text);
    all &= notes[r].has_value() || posts[r].has_value();
  }
  if (!all && !final) return std::nullopt;
  return StoryOf(notes, [this](const std::string& communicator, int r) {
    return ClosedCountOf(communicator, r);
  });
}

Note Session::OwnNote() {
  Note note;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const std::shared_ptr<Member>& member : members_) {
    absl::Status ignored;  // the device's: it fails the session at the next look
    Advance(*member, &ignored);
    CommunicatorNote& told = note.communicators.emplace_back();
    told.name = member->membership.name;
    told.world_ranks = member->membership.world_ranks;
    told.entered = member->finished;
    if (member->under_way.empty() || !member->under_way.front().begun) continue;
    const UnderWay& front = member->under_way.front();
    ++told.entered;
    told.waiting =
        Waiting{clock().Now() - *front.begun, front.launch, front.operation, Signature(front.op)};
  }
  return note;
}

std::optional<std::int64_t> Session::ClosedCountOf(const std::string& communicator, int r) const {
  const std::optional<std::string> text =
      store().Read(absl::StrCat("closed.", EscapedName(communicator), ".", r));
  std::int64_t count = 0;
  if (!text || !absl::SimpleAtoi(*text, &count)) return std::nullopt;
  return count;
}

// All in one group: one after another, each would wait for the device, where kernels of the next
// still wait for their peers.
void Session::AbortAll() {
  const std::vector<std::shared_ptr<Member>> members = Members();
  const Nanos limit = clock().Now() + std::min(kDrainTime, BoundedNanos(deadline()));
  Clock& steady = Clock::Steady();
  {
    std::unique_lock<std::mutex> calls(calls_);
    std::vector<ncclComm_t> comms;
    for (const std::shared_ptr<Member>& member : members) {
      if (member->comm != nullptr) comms.push_back(std::exchange(member->comm, nullptr));
    }
    last_end_ = nullptr;
    if (const RevokeCall revoke = Revoke(); revoke != nullptr) {
      // Lets all kernels go before anything is freed. Whatever it answers, the abort follows.
      for (const ncclComm_t comm : comms) (void)revoke(comm, 0);
      while (std::any_of(comms.begin(), comms.end(), InProgress) && clock().Now() < limit) {
        std::unique_lock<std::mutex> lock(mutex_);
        (void)steady.WaitUntil(changed_, lock, steady.Now() + kMillisecond);
      }
    }
    (void)ncclGroupStart();
    for (const ncclComm_t comm : comms) (void)ncclCommAbort(comm);
    (void)ncclGroupEnd();
  }
  // NCCL may go on with it by itself, but nothing can be asked of a communicator that is being
  // freed.
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    absl::Status ignored;
    bool over = true;
    for (const std::shared_ptr<Member>& member : members) {
      Advance(*member, &ignored);
      over &= member->under_way.empty();
    }
    if (over || !ignored.ok() || clock().Now() >= limit) return;
    (void)steady.WaitUntil(changed_, lock, steady.Now() + kMillisecond);
  }
}

}  // namespace weft::collectives::nccl
