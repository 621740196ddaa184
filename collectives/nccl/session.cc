#include "collectives/nccl/session.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/nccl/calls.h"
#include "collectives/nccl/status.h"

namespace weft::collectives::nccl {
namespace {

constexpr Nanos kMillisecond = 1'000'000;
// Of real time, since the device moves when the session's clock does not.
constexpr Nanos kSettlePoll = 20'000;
constexpr int kBusyPolls = 100;

void ForgetTags(Operation& op) {
  op.tag = {};
  for (Operation& joined : op.joined) joined.tag = {};
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const NcclTransportOptions& options,
                                                       device::CudaDevice& device,
                                                       ChosenOrder order) {
  WEFT_RETURN_IF_ERROR(StoreSession::Check(options.rank, options.size, options.store));
  std::shared_ptr<Session> session(new Session(options, device, std::move(order)));
  if (absl::Status met = session->MeetAll(); !met.ok()) {
    session->Report(
        {PostKind::kLeft, -1, "", {absl::StatusCode::kUnavailable, session->rank(), "has left"}});
    return met;
  }
  // It owns the session, so that it can be left behind where NCCL does not return.
  session->watch_ = std::thread([session] { session->Watch(); });
  return session;
}

Session::Session(const NcclTransportOptions& options, device::CudaDevice& device, ChosenOrder order)
    : StoreSession({options.rank, options.size, options.store, options.deadline, &device.clock()}),
      options_(options),
      device_(device),
      order_(std::move(order)) {}

Session::~Session() = default;

std::vector<std::shared_ptr<Member>> Session::Members() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return members_;
}

absl::Status Session::StatusNow(const Member& member) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return member.status;
}

absl::Status Session::StatusOf(const Member& member) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return !ending_ || end_; });
  return member.status;
}

absl::Status Session::Issue(Member& member, Stream& stream, Operation op) {
  WEFT_RETURN_IF_ERROR(StatusOf(member));
  if (MovesNothing(op)) return absl::OkStatus();
  device::CudaStream& cuda_stream = device::CudaStream::Of(stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(cuda_stream.handle(), &capture) == cudaSuccess &&
      capture != cudaStreamCaptureStatusNone) {
    return absl::FailedPreconditionError(
        absl::StrCat("stream ", std::string(stream.name()),
                     " is being captured, and a graph has no collectives"));
  }
  UnderWay under_way;
  under_way.operation = Describe(op);
  under_way.op = std::move(op);
  ForgetTags(under_way.op);
  absl::Status launched = Launch(member, cuda_stream, under_way);
  if (launched.ok()) return launched;
  // Once somebody finds out why the session ends, this is an effect of that.
  if (!ending_) {
    Fail({PostKind::kCause,
          -1,
          member.membership.name,
          {launched.code(), rank(), std::string(launched.message())}});
  }
  absl::Status status = StatusOf(member);
  cuda_stream.Abort(status);
  return status;
}

// The message is what this rank has to say of itself. Once the session is ending nobody asks for
// it.
absl::Status Session::Launch(Member& member, device::CudaStream& stream, UnderWay& under_way) {
  const std::lock_guard<std::mutex> calls(calls_);
  if (ending_) return absl::CancelledError("the session ends");
  if (const absl::Status failed = stream.status(); !failed.ok()) {
    return absl::Status(failed.code(),
                        absl::StrCat("did not come to ", under_way.operation,
                                     " because its stream had failed: ", failed.message()));
  }
  if (order_.serialized && last_end_ != nullptr && last_stream_ != stream.state()) {
    WEFT_RETURN_IF_ERROR(stream.WaitFor(*last_end_));
  }
  WEFT_ASSIGN_OR_RETURN(under_way.begin, stream.Here());
  const absl::Status called = stream.EnqueueNative([&](cudaStream_t native) -> absl::Status {
    void* const scratch = member.scratch ? member.scratch->data() : nullptr;
    WEFT_RETURN_IF_ERROR(Call(under_way.op, {member.comm, member.membership.rank,
                                             member.membership.size(), native, scratch}));
    return Settle(member, under_way.operation, WaitLimit());
  });
  WEFT_RETURN_IF_ERROR(called);
  // Only now is the kernel on the stream, and before the mark.
  WEFT_ASSIGN_OR_RETURN(under_way.end, stream.Here());
  last_end_ = under_way.end;
  last_stream_ = stream.state();
  under_way.stream = stream.state();
  under_way.launch = launches_++;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (end_) return absl::CancelledError("the session has ended");
  member.under_way.push_back(std::move(under_way));
  return absl::OkStatus();
}

absl::Status Session::Settle(Member& member, const std::string& what, Nanos limit) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock(mutex);
  for (int polls = 0;; ++polls) {
    ncclResult_t state = ncclInProgress;
    WEFT_RETURN_IF_ERROR(
        NcclStatus(ncclCommGetAsyncError(member.comm, &state), "ncclCommGetAsyncError"));
    if (state != ncclInProgress) return NcclStatus(state, what);
    if (ending_) return absl::CancelledError("the session ends");
    if (clock().Now() >= limit) {
      return absl::DeadlineExceededError(
          absl::StrCat("waited ", absl::FormatDuration(deadline()), " for NCCL to begin ", what));
    }
    if (polls < kBusyPolls) {
      std::this_thread::yield();
    } else {
      (void)clock().WaitUntil(never, lock, clock().Now() + kSettlePoll);
    }
  }
}

bool Session::SetStory(const Post& story) {
  std::vector<std::pair<std::shared_ptr<device::StreamState>, absl::Status>> streams;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (end_) return false;
    ending_ = true;
    end_ = story;
    for (const std::shared_ptr<Member>& member : members_) {
      member->status = Tell(story, member->membership);
      for (const UnderWay& under_way : member->under_way) {
        streams.emplace_back(under_way.stream, member->status);
      }
    }
  }
  SetEnded(story);
  for (const auto& [stream, status] : streams) stream->Abort(status);
  changed_.notify_all();
  return true;
}

void Session::Fail(const Post& post) {
  if (!SetStory(post)) return;
  // Before NCCL's abort, so that a peer that sees its effects finds the reason.
  Report(post);
  store().Post("alarm", "").IgnoreError();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    posted_ = true;
  }
  changed_.notify_all();
}

absl::Status Session::failure() {
  std::optional<Post> end;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !ending_ || end_; });
    end = end_;
  }
  if (!end) return StoreSession::failure();
  if (!end->communicator.empty()) return AsSeenBy(end->failure, end->communicator, rank());
  const std::string who =
      end->failure.rank < 0 ? std::string() : absl::StrCat("rank ", end->failure.rank, " ");
  return absl::Status(end->failure.code, absl::StrCat(who, end->failure.what));
}

void Session::Close(Member& member) {
  const Nanos limit = WaitLimit();
  std::string stuck;
  std::unique_lock<std::mutex> lock(mutex_);
  if (std::exchange(member.closed, true)) return;
  while (!ending_) {
    absl::Status error;  // the watching thread's business
    Advance(member, &error);
    if (member.under_way.empty()) break;
    if (!member.under_way.front().begun && clock().Now() >= limit) {
      stuck = member.under_way.front().operation;
      break;
    }
    (void)clock().WaitUntil(changed_, lock, clock().Now() + kMillisecond);
  }
  const std::int64_t count = member.finished;
  lock.unlock();
  if (!stuck.empty()) {
    Fail({PostKind::kCause,
          -1,
          member.membership.name,
          {absl::StatusCode::kDeadlineExceeded, rank(),
           absl::StrCat("waited ", absl::FormatDuration(deadline()),
                        " for its own stream to come to ", stuck)}});
  }
  if (!ending_) {
    store()
        .Post(absl::StrCat("closed.", EscapedName(member.membership.name), ".", rank()),
              absl::StrCat(count))
        .IgnoreError();
    if (const absl::Status finalized = Finalize(member); !finalized.ok()) {
      Fail({PostKind::kCause,
            -1,
            member.membership.name,
            {finalized.code(), rank(), std::string(finalized.message())}});
    }
  }
  lock.lock();
  while (ending_ && !aborted_ && !left_ && clock().Now() < limit) {
    (void)clock().WaitUntil(changed_, lock, limit);
  }
  // What NCCL may still use stays with the session.
  if (ending_ && !aborted_) return;
  std::erase_if(members_, [&](const auto& kept) { return kept.get() == &member; });
}

absl::Status Session::Finalize(Member& member) {
  const std::lock_guard<std::mutex> calls(calls_);
  if (member.comm == nullptr || ending_) return absl::OkStatus();
  const device::CudaDevice::Current current(device_);
  WEFT_RETURN_IF_ERROR(NcclStatus(ncclCommFinalize(member.comm), "ncclCommFinalize"));
  WEFT_RETURN_IF_ERROR(Settle(member, "its end", WaitLimit()));
  const ncclResult_t destroyed = ncclCommDestroy(std::exchange(member.comm, nullptr));
  member.scratch.reset();
  return NcclStatus(destroyed, "ncclCommDestroy");
}

void Session::Leave() {
  for (const std::shared_ptr<Member>& member : Members()) Close(*member);
  const Post post{PostKind::kLeft, -1, "", {absl::StatusCode::kUnavailable, rank(), "has left"}};
  if (SetStory(post)) Report(post);
  const Nanos limit = WaitLimit();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    left_ = true;
    stop_ = true;
    changed_.notify_all();
    while (!watch_ended_ && clock().Now() < limit) (void)clock().WaitUntil(changed_, lock, limit);
    if (!watch_ended_) return watch_.detach();
  }
  watch_.join();
}

}  // namespace weft::collectives::nccl
