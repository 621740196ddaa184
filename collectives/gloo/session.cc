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
#include "base/annotate.h"
#include "base/status_macros.h"
#include "collectives/gloo/member.h"
#include "collectives/gloo/quiet_pipe.h"
#include "collectives/member.h"

namespace weft::collectives::gloo {
namespace {

constexpr Nanos kMillisecond = 1'000'000;
// Between two looks of the watcher at the board, while somebody waits.
constexpr Nanos kRound = 50 * kMillisecond;

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

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const GlooTransportOptions& options) {
  WEFT_RETURN_IF_ERROR(StoreSession::Check(options.rank, options.size, options.store));
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
    : StoreSession({options.rank, options.size, options.store, options.deadline, &Clock::Steady()}),
      device_(std::move(device)),
      watcher_([this] { Watch(); }) {}

Session::~Session() { Leave(); }

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

Session::Watched::Watched(Session& session, std::function<void(bool ended)> wake)
    : session_(session), wake_(std::move(wake)) {
  const std::lock_guard<std::mutex> lock(session_.mutex_);
  if (session_.ended()) wake_(true);
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

void Session::Abort(const absl::Status& cause) {
  const Post post{PostKind::kCause, -1, "", AbortedBy(rank(), cause)};
  if (!SetEnded(post)) return;
  // Posted before the connections close, so that whoever sees them close finds the reason.
  Report(post);
  board().MarkAborted(rank());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    WakeLocked();
  }
  for (const auto& member : Members()) member->End(post);
}

void Session::Leave() {
  const Post post{PostKind::kLeft, -1, "", {absl::StatusCode::kUnavailable, rank(), "has left"}};
  const bool first = SetEnded(post);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
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

void Session::WakeLocked() {
  const bool has_ended = ended().has_value();
  for (const Watched* wait : waits_) wait->wake_(has_ended);
  changed_.notify_all();
}

void Session::Watch() {
  base::NameThread("weft watchdog");
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
    if (r == rank() || !board().IsAborted(r)) continue;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!aborted_peers_.insert(r).second) continue;
    }
    for (const auto& member : Members()) member->PeerAborted(r);
  }
}

}  // namespace weft::collectives::gloo
