#include "device/cuda/cuda_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_event.h"
#include "device/cuda/mark_pool.h"
#include "device/cuda/poll.h"
#include "device/cuda/status.h"
#include "device/cuda/watcher.h"

namespace weft::device {

CudaStream::CudaStream(CudaDevice& device, std::string name, cudaStream_t handle, Owner owner,
                       absl::Status created)
    : device_(device),
      ordinal_(device.ordinal()),
      handle_(handle),
      owner_(owner),
      created_(std::move(created)),
      state_(std::make_shared<StreamState>(std::move(name))),
      shared_(owner == Owner::kCaller) {
  if (!created_.ok()) state_->Fail(created_, 0);
}

CudaStream::~CudaStream() {
  (void)Synchronize(absl::InfiniteDuration());
  if (owner_ == Owner::kCaller || !created_.ok() || !device_.marks()->failure().ok()) return;
  const OnDevice on_device(ordinal_);
  (void)cudaStreamDestroy(handle_);
}

CudaStream& CudaStream::Of(Stream& stream) {
  auto* cuda_stream = dynamic_cast<CudaStream*>(&stream);
  WEFT_CHECK(cuda_stream != nullptr) << "stream " << stream.name() << " is of another device";
  return *cuda_stream;
}

std::string CudaStream::Describe() const {
  return absl::StrCat("stream ", state_->name(), " of ", device_.marks()->name());
}

std::int64_t CudaStream::Begin() {
  std::shared_ptr<Mark> before;
  const std::lock_guard<std::mutex> lock(mutex_);
  before.swap(here_);
  return state_->Next();
}

absl::Status CudaStream::FailCall(cudaError_t error, std::string_view name, std::int64_t position) {
  absl::Status status = CudaStatus(error, name, Describe());
  state_->Fail(status, position);
  return status;
}

void CudaStream::FailWith(const absl::Status& error, std::int64_t position) {
  state_->Fail(absl::Status(error.code(), absl::StrCat("a product on ", Describe(), ": ",
                                                       std::string(error.message()))),
               position);
}

bool CudaStream::Refuses(std::string_view what) {
  if (!capturing_) return false;
  state_->Fail(absl::FailedPreconditionError(absl::StrCat("a replay has no ", std::string(what),
                                                          ", but its work enqueues one")),
               state_->Next());
  return true;
}

absl::Status CudaStream::EnqueueNative(const std::function<absl::Status(cudaStream_t)>& enqueue) {
  WEFT_RETURN_IF_ERROR(status());
  const OnDevice on_device(ordinal_);
  (void)Begin();
  return enqueue(handle_);
}

absl::StatusOr<std::shared_ptr<Mark>> CudaStream::Here(bool timed) {
  WEFT_RETURN_IF_ERROR(created_);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (here_ != nullptr && !shared_ && (here_->timed() || !timed)) return here_;
  const absl::StatusOr<cudaEvent_t> event = device_.marks()->Take(timed);
  if (!event.ok()) {
    state_->Fail(event.status(), state_->Next());
    return event.status();
  }
  auto mark = std::make_shared<Mark>(device_.marks(), *event, timed);
  const OnDevice on_device(ordinal_);
  if (const cudaError_t error = cudaEventRecord(*event, handle_); error != cudaSuccess) {
    return FailCall(error, "cudaEventRecord", state_->Next());
  }
  here_ = mark;
  return mark;
}

absl::Status CudaStream::WaitFor(const Mark& mark) {
  Issue("cudaStreamWaitEvent",
        [&](cudaStream_t handle) { return cudaStreamWaitEvent(handle, mark.event(), 0); });
  return status();
}

absl::StatusOr<void*> CudaStream::Workspace() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (workspace_ != nullptr) return workspace_->data();
  const OnDevice on_device(ordinal_);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(handle_, &capture);
  if (error != cudaSuccess) return CudaStatus(error, "cudaStreamIsCapturing", Describe());
  if (capture != cudaStreamCaptureStatusNone) {
    return absl::FailedPreconditionError(
        absl::StrCat("the first product of ", Describe(), " cannot be captured: it allocates"));
  }
  WEFT_ASSIGN_OR_RETURN(workspace_,
                        device_.Allocate(std::max(device_.workspace_bytes(), kSmallestWorkspace)));
  return workspace_->data();
}

absl::StatusOr<cudaGraph_t> CudaStream::Capture(const std::function<absl::Status(Stream&)>& work) {
  const OnDevice on_device(ordinal_);
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(handle_, cudaStreamCaptureModeThreadLocal),
                                  "cudaStreamBeginCapture", Describe()));
  capturing_ = true;
  absl::Status recorded = state_->Guarded([&] { return work(*this); });
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  // Also after an error, which must not leave the thread in a capture.
  const cudaError_t error = cudaStreamEndCapture(handle_, &graph);
  recorded.Update(status());
  recorded.Update(CudaStatus(error, "cudaStreamEndCapture", Describe()));
  if (recorded.ok()) return graph;
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  return recorded;
}

void* CudaStream::native() const {
  shared_ = true;
  return handle_;
}

void CudaStream::Enqueue(Work work) {
  if (Refuses("host functions") || !status().ok()) return;
  const OnDevice on_device(ordinal_);
  const std::int64_t position = Begin();
  state_->PushHostWork(std::move(work), position);
  const auto run = [](void* state) { static_cast<StreamState*>(state)->RunHostWork(); };
  if (const cudaError_t error = cudaLaunchHostFunc(handle_, run, state_.get());
      error != cudaSuccess) {
    state_->DropHostWork();
    (void)FailCall(error, "cudaLaunchHostFunc", position);
  }
}

void CudaStream::EnqueueAlways(std::function<void(const absl::Status&)> work) {
  if (Refuses("host functions")) return;
  absl::StatusOr<std::shared_ptr<Mark>> here = Here();
  // Without a mark the stream has failed, and nothing is waited for.
  device_.watcher().AddCallback(state_, state_->Next(), here.ok() ? *here : nullptr,
                                std::move(work));
}

void CudaStream::Record(Event& event) {
  if (Refuses("events")) return;
  auto* cuda_event = dynamic_cast<CudaEvent*>(&event);
  WEFT_CHECK(cuda_event != nullptr)
      << "stream " << name() << " records an event that is "
      << (dynamic_cast<AdoptedEvent*>(&event) != nullptr ? "adopted" : "of another device");
  absl::StatusOr<std::shared_ptr<Mark>> here = Here();
  cuda_event->Move({.stream = state_,
                    .position = state_->position(),
                    .mark = here.ok() ? *std::move(here) : nullptr});
}

void CudaStream::Wait(const Event& event) {
  if (Refuses("events")) return;
  if (const auto* adopted = dynamic_cast<const AdoptedEvent*>(&event)) {
    Issue("cudaStreamWaitEvent",
          [&](cudaStream_t handle) { return cudaStreamWaitEvent(handle, adopted->event(), 0); });
    return;
  }
  const auto* cuda_event = dynamic_cast<const CudaEvent*>(&event);
  WEFT_CHECK(cuda_event != nullptr)
      << "stream " << name() << " waits for an event of another device";
  const EventPoint point = cuda_event->point();
  if (point.stream == nullptr) return;
  absl::Status known =
      point.stream->aborted() ? point.stream->status() : point.stream->StatusAt(point.position);
  if (!known.ok()) {
    state_->Fail(std::move(known), state_->Next());
  } else if (point.stream != state_) {
    (void)WaitFor(*point.mark);
  }
}

void CudaStream::RecordTime(Nanos* time) {
  if (Refuses("times")) return;
  absl::StatusOr<std::shared_ptr<Mark>> here = Here(/*timed=*/true);
  if (here.ok()) {
    device_.watcher().AddTime(state_, state_->Next(), *std::move(here), time);
    return;
  }
  device_.watcher().AddCallback(
      state_, state_->Next(), nullptr,
      [time, &clock = device_.clock()](const absl::Status&) { *time = clock.Now(); });
}

absl::StatusOr<bool> CudaStream::HasPassed(const Mark* end, std::int64_t position) {
  if (end != nullptr) {
    absl::StatusOr<bool> reached = end->Reached();
    if (!reached.ok()) {
      state_->Fail(reached.status(), 0);
    } else if (!*reached) {
      return false;
    }
  }
  return device_.watcher().IsDone(state_, position);
}

absl::Status CudaStream::Synchronize(absl::Duration timeout) {
  const Nanos deadline = base::DeadlineAfter(device_.clock(), timeout);
  const std::int64_t position = state_->position();
  // Without a mark the stream has failed, and only callbacks are left.
  const absl::StatusOr<std::shared_ptr<Mark>> end = Here();
  const absl::StatusOr<bool> passed = Poll(device_.clock(), deadline, [&] {
    return HasPassed(end.ok() ? end->get() : nullptr, position);
  });
  if (passed.ok() && *passed) return status();
  return absl::DeadlineExceededError(absl::StrCat(
      "stream ", state_->name(), " did not finish within ", absl::FormatDuration(timeout)));
}

void CudaStream::Abort(absl::Status cause) {
  WEFT_CHECK(!cause.ok()) << "stream " << name() << " aborted with an OK status";
  state_->Abort(std::move(cause));
}

}  // namespace weft::device
