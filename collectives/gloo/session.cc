#include "collectives/gloo/session.h"

#include <gloo/transport/tcp/device.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "collectives/gloo/member.h"
#include "collectives/gloo/quiet_pipe.h"
#include "collectives/member.h"

namespace weft::collectives::gloo {
namespace {

constexpr Nanos kMillisecond = 1'000'000;
// Between two looks of the watcher at the board, while somebody waits.
constexpr Nanos kRound = 50 * kMillisecond;
constexpr Nanos kFilePoll = 5 * kMillisecond;
constexpr Nanos kStoryTime = 2'000 * kMillisecond;

absl::StatusOr<std::shared_ptr<::gloo::transport::Device>> OpenDevice(const std::string& host) {
  ::gloo::transport::tcp::attr attributes;
  if (::if_nametoindex(host.c_str()) != 0) {
    attributes.iface = host;
  } else {
    // gloo crashes on a name that does not resolve.
    addrinfo* found = nullptr;
    if (const int error = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found); error != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("host '", host, "' is no address and no interface: ", gai_strerror(error)));
    }
    ::freeaddrinfo(found);
    attributes.hostname = host;
  }
  absl::StatusOr<std::shared_ptr<::gloo::transport::Device>> opened;
  std::thread opener([&] {
    const QuietPipe quiet;  // for gloo's socket thread, which inherits the mask
    // gloo's socket thread spins while another thread holds a connection's lock. As a batch thread
    // (the policy is inherited) it does not preempt the one that holds it when woken, which on busy
    // cores otherwise costs a whole time slice per message.
    const sched_param parameters{};
    ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &parameters);
    try {
      opened = ::gloo::transport::tcp::CreateDevice(attributes);
    } catch (const std::exception& error) {
      opened = absl::UnavailableError(
          absl::StrCat("gloo cannot listen on '", host, "': ", error.what()));
    }
  });
  opener.join();
  return opened;
}

// Tells this run's files from those of an earlier run.
std::string Nonce() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x", device(), device(), device());
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const GlooTransportOptions& options) {
  if (options.size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("size is ", options.size, ", not >= 1"));
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " is not in a world of ", options.size));
  }
  WEFT_RETURN_IF_ERROR(Store(options.store).Check());
  WEFT_ASSIGN_OR_RETURN(auto device, OpenDevice(options.host));
  std::shared_ptr<Session> session(new Session(options, std::move(device)));
  if (absl::Status met = session->MeetAll(); !met.ok()) {
    session->Leave();
    return met;
  }
  return session;
}

Session::Session(const GlooTransportOptions& options,
                 std::shared_ptr<::gloo::transport::Device> device)
    : options_(options),
      store_(options.store),
      board_(store_, options.size),
      device_(std::move(device)),
      watcher_([this] { Watch(); }) {}

Session::~Session() { Leave(); }

Nanos Session::WaitLimit() const { return clock().Now() + BoundedNanos(deadline()); }

// Every rank posts "here"; rank 0, when it has seen all, posts the list of what it saw as "run". A
// rank that does not find its own entry in "run" has met the files of an earlier run.
absl::Status Session::MeetAll() {
  const auto here = [](int rank) { return absl::StrCat("here.", rank); };
  absl::Status leftovers = absl::FailedPreconditionError(
      absl::StrCat("store '", store_.directory(),
                   "' holds files of an earlier run; every run needs an empty directory"));
  const std::string entry = absl::StrCat(options_.size, " ", Nonce());
  absl::Status posted = store_.Post(here(rank()), entry);
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
                     RankList(missing), " to come to store '", store_.directory(), "'"));
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

void Session::Add(const std::shared_ptr<GlooMember>& member) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(members_, [](const auto& kept) { return kept.expired(); });
  members_.push_back(member);
}

std::vector<std::shared_ptr<GlooMember>> Session::Members() const {
  std::vector<std::shared_ptr<GlooMember>> members;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& weak : members_) {
    if (std::shared_ptr<GlooMember> member = weak.lock()) members.push_back(std::move(member));
  }
  return members;
}

bool Session::TakeName(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return names_.insert(name).second;
}

Session::Watched::Watched(Session& session, std::function<void(bool ended)> wake)
    : session_(session), wake_(std::move(wake)) {
  const std::lock_guard<std::mutex> lock(session_.mutex_);
  if (session_.ended_) wake_(true);
  session_.waits_.insert(this);
  if (session_.waits_.size() == 1) session_.changed_.notify_all();
}

Session::Watched::~Watched() {
  const std::lock_guard<std::mutex> lock(session_.mutex_);
  session_.waits_.erase(this);
}

bool Session::WaitARound(::gloo::transport::UnboundBuffer& buffer, bool recv) {
  const Watched watched(*this, [&](bool) {
    if (recv) {
      buffer.abortWaitRecv();
    } else {
      buffer.abortWaitSend();
    }
  });
  // Much longer than a round: gloo's own timeout would close every connection.
  constexpr std::chrono::hours kNever(24);
  return recv ? buffer.waitRecv(nullptr, kNever) : buffer.waitSend(nullptr, kNever);
}

bool Session::Poll(Nanos limit, const std::function<bool()>& done) {
  for (;;) {
    if (done()) return true;
    std::unique_lock<std::mutex> lock(mutex_);
    const Nanos now = clock().Now();
    if (ended_ || now >= limit) return false;
    clock().WaitUntil(changed_, lock, std::min(limit, now + kFilePoll));
  }
}

void Session::Report(const Post& post) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(reported_, true)) return;
  }
  board_.Write(rank(), post);
}

Post Session::Story() {
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

void Session::Abort(const absl::Status& cause) {
  const Post post{PostKind::kCause, -1, "", AbortedBy(rank(), cause)};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return;
    ended_ = post;
  }
  // Posted before the connections close, so that whoever sees them close finds the reason.
  Report(post);
  board_.MarkAborted(rank());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    WakeLocked();
  }
  for (const auto& member : Members()) member->End(post);
}

void Session::Leave() {
  const Post post{PostKind::kLeft, -1, "", {absl::StatusCode::kUnavailable, rank(), "has left"}};
  bool first = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    first = !ended_;
    if (first) ended_ = post;
    stop_watching_ = true;
  }
  if (first) Report(post);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    WakeLocked();
  }
  for (const auto& member : Members()) member->End(post);
  if (watcher_.joinable()) watcher_.join();
}

std::optional<Post> Session::ended() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ended_;
}

absl::Status Session::failure() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!reported_) return absl::OkStatus();
  }
  const Post story = Story();
  if (!story.communicator.empty()) return AsSeenBy(story.failure, story.communicator, rank());
  return absl::Status(story.failure.code,
                      absl::StrCat("rank ", story.failure.rank, " ", story.failure.what));
}

void Session::WakeLocked() {
  for (const Watched* wait : waits_) wait->wake_(ended_.has_value());
  changed_.notify_all();
}

void Session::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_watching_) {
    if (waits_.empty()) {
      changed_.wait(lock, [&] { return stop_watching_ || !waits_.empty(); });
    }
    const Nanos next = clock().Now() + kRound;
    while (!stop_watching_ && clock().Now() < next) clock().WaitUntil(changed_, lock, next);
    if (stop_watching_) return;
    lock.unlock();
    NoticeAborts();
    lock.lock();
    WakeLocked();
  }
}

void Session::NoticeAborts() {
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || !board_.IsAborted(r)) continue;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!aborted_peers_.insert(r).second) continue;
    }
    for (const auto& member : Members()) member->PeerAborted(r);
  }
}

}  // namespace weft::collectives::gloo
