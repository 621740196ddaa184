// Streams, events and host functions.
#include <utility>

#include "tests/fakes/cudart/common.h"

namespace weft::fakes {
namespace {

int CreateStream(cudaStream_t* stream, unsigned flags, int priority) {
  Call call("cudaStreamCreate");
  if (call.error() != 0) return call.error();
  if (stream == nullptr || flags > cudaStreamNonBlocking) return kInvalidValue;
  *stream = reinterpret_cast<cudaStream_t>(
      call.world().NewStream(call.thread().device, flags, priority, false));
  return kSuccess;
}

int CreateEvent(cudaEvent_t* event, unsigned flags) {
  Call call("cudaEventCreate");
  if (call.error() != 0) return call.error();
  if (event == nullptr || flags > 7) return kInvalidValue;
  Event& made = call.world().events.emplace_back();
  made.device = call.thread().device;
  made.flags = flags;
  call.world().event_of[&made] = &made;
  *event = reinterpret_cast<cudaEvent_t>(&made);
  return kSuccess;
}

int RecordEvent(cudaEvent_t event_handle, cudaStream_t handle, unsigned flags) {
  Call call("cudaEventRecord");
  if (call.error() != 0) return call.error();
  Event* event = call.FindEvent(event_handle);
  Stream* stream = call.FindStream(handle);
  if (event == nullptr || stream == nullptr) return kInvalidResourceHandle;
  if (event->device != stream->device) {
    call.Misuse("of an event of device " + std::to_string(event->device) + " on " +
                stream->Label());
    return kInvalidResourceHandle;
  }
  const bool external = (flags & cudaEventRecordExternal) != 0;
  if (stream->capture != nullptr) return CaptureRecord(stream, event, external);
  if (external) {
    call.Misuse("with cudaEventRecordExternal outside of a capture");
    return kInvalidValue;
  }
  if (const int implicit = call.CheckImplicit(*stream)) return implicit;
  event->capture.reset();
  event->record = call.world().Record(stream);
  return kSuccess;
}

bool Dropped(World& world, const Stream& stream, std::int64_t index) {
  for (const std::string& name : {stream.name, stream.number}) {
    const auto found = world.drops.find({stream.device, name});
    if (found != world.drops.end() && found->second && found->second(index)) return true;
  }
  return false;
}

int Wait(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  Call call("cudaStreamWaitEvent");
  if (call.error() != 0) return call.error();
  Stream* stream = call.FindStream(handle);
  Event* event = call.FindEvent(event_handle);
  if (stream == nullptr || event == nullptr) return kInvalidResourceHandle;
  const auto index = static_cast<std::int64_t>(stream->waits.size());
  stream->waits.push_back(event->record == nullptr ? "" : event->record->stream->name);
  if (Dropped(call.world(), *stream, index)) return kSuccess;
  const bool external = (flags & cudaEventWaitExternal) != 0;
  if (stream->capture != nullptr || event->capture != nullptr) {
    return CaptureWait(call.world(), stream, event, external);
  }
  if (event->record == nullptr) return kSuccess;
  if (const int implicit = call.CheckImplicit(*stream)) return implicit;
  auto node = call.world().MakeNode(Node::Kind::kWait, stream, Work{"wait", {}, {}, {}});
  node->waits.push_back(event->record);
  call.world().Enqueue(std::move(node));
  return kSuccess;
}

// What the host learns of a place that has been reached: whoever asks is a host of its device.
void Learn(Call& call, int device, const Mark& mark) {
  call.world().JoinHost(device, mark.clock);
  call.world().JoinHost(call.thread().device, mark.clock);
}

int CheckCaptured(Call& call, const Event& event) {
  if (event.capture == nullptr) return kSuccess;
  call.Misuse("of an event that was recorded in a capture");
  event.capture->invalid = true;
  return kCapturedEvent;
}

int CheckCaptured(Call& call, const Stream& stream) {
  if (stream.capture == nullptr) return call.CheckImplicit(stream);
  return Invalidate(call.world(), *stream.capture, kCaptureUnsupported, "synchronizing its stream");
}

// Whether a call may ask how far a stream or event has come.
template <typename Asked>
int CheckAsked(Call& call, const Asked* asked) {
  if (asked == nullptr) return kInvalidResourceHandle;
  if (const int captured = CheckCaptured(call, *asked)) return captured;
  return call.world().Sticky(asked->device);
}

// The default stream stands for the work of all blocking ones.
std::vector<std::shared_ptr<Mark>> Tails(Call& call, const Stream& stream) {
  std::vector<std::shared_ptr<Mark>> tails;
  if (stream.tail != nullptr) tails.push_back(stream.tail);
  if (!stream.legacy) return tails;
  for (const Stream* other : call.world().devices[stream.device].streams) {
    if (other->blocking() && other->tail != nullptr) tails.push_back(other->tail);
  }
  return tails;
}

bool Done(const std::vector<std::shared_ptr<Mark>>& marks) {
  for (const auto& mark : marks) {
    if (!mark->done) return false;
  }
  return true;
}

int QueryStream(cudaStream_t handle) {
  Call call("cudaStreamQuery", Call::Kind::kPoll);
  if (call.error() != 0) return call.error();
  Stream* stream = call.FindStream(handle);
  if (const int refused = CheckAsked(call, stream)) return refused;
  const auto tails = Tails(call, *stream);
  const bool done = Done(tails);
  call.Polled(done);
  if (!done) return kNotReady;
  for (const auto& tail : tails) Learn(call, stream->device, *tail);
  return kSuccess;
}

int SynchronizeStream(cudaStream_t handle) {
  Call call("cudaStreamSynchronize", Call::Kind::kUnsafe);
  if (call.error() != 0) return call.error();
  Stream* stream = call.FindStream(handle);
  if (const int refused = CheckAsked(call, stream)) return refused;
  const auto tails = Tails(call, *stream);
  if (const int error = call.Block(" of " + stream->Label(), [&] { return Done(tails); })) {
    return error;
  }
  for (const auto& tail : tails) Learn(call, stream->device, *tail);
  return kSuccess;
}

int QueryEvent(cudaEvent_t handle) {
  Call call("cudaEventQuery", Call::Kind::kPoll);
  if (call.error() != 0) return call.error();
  Event* event = call.FindEvent(handle);
  if (const int refused = CheckAsked(call, event)) return refused;
  const bool done = event->record == nullptr || event->record->done;
  call.Polled(done);
  if (!done) return kNotReady;
  if (event->record != nullptr) Learn(call, event->device, *event->record);
  return kSuccess;
}

int SynchronizeEvent(cudaEvent_t handle) {
  Call call("cudaEventSynchronize", Call::Kind::kUnsafe);
  if (call.error() != 0) return call.error();
  Event* event = call.FindEvent(handle);
  if (const int refused = CheckAsked(call, event)) return refused;
  const std::shared_ptr<Mark> mark = event->record;
  if (mark == nullptr) return kSuccess;
  const std::string where = " of an event of " + mark->stream->Label();
  if (const int error = call.Block(where, [&] { return mark->done; })) return error;
  Learn(call, event->device, *mark);
  return kSuccess;
}

int ElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  Call call("cudaEventElapsedTime");
  if (call.error() != 0) return call.error();
  const Event* from = call.FindEvent(start);
  const Event* to = call.FindEvent(end);
  if (ms == nullptr) return kInvalidValue;
  if (from == nullptr || to == nullptr) return kInvalidResourceHandle;
  for (const Event* event : {from, to}) {
    if ((event->flags & cudaEventDisableTiming) == 0 && event->record != nullptr) continue;
    call.Misuse("of an event that was not recorded or has no time");
    return kInvalidResourceHandle;
  }
  if (!from->record->done || !to->record->done) return kNotReady;
  *ms = static_cast<float>(static_cast<double>(to->record->time_ns - from->record->time_ns) * 1e-6);
  return kSuccess;
}

}  // namespace
}  // namespace weft::fakes

using weft::fakes::Call;
using weft::fakes::Event;
using weft::fakes::Return;
using weft::fakes::Stream;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return Return(weft::fakes::CreateStream(stream, 0, 0));
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return Return(weft::fakes::CreateStream(stream, flags, 0));
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return Return(weft::fakes::CreateStream(stream, flags, priority));
}
// What is enqueued still runs.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Call call("cudaStreamDestroy");
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr || stream->legacy) return Return(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) stream->capture->invalid = true;
  stream->destroyed = true;
  return Return(call.error());
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return Return(weft::fakes::Wait(stream, event, flags));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Return(weft::fakes::QueryStream(stream));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Return(weft::fakes::SynchronizeStream(stream));
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  Call call("cudaStreamGetPriority");
  const Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return Return(call.error());
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned int* flags) {
  Call call("cudaStreamGetFlags");
  const Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  *flags = stream->flags;
  return Return(call.error());
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  Call call("cudaStreamGetDevice");
  const Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  *device = stream->device;
  return Return(call.error());
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return Return(weft::fakes::CreateEvent(event, 0));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return Return(weft::fakes::CreateEvent(event, flags));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Return(weft::fakes::RecordEvent(event, stream, 0));
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return Return(weft::fakes::RecordEvent(event, stream, flags));
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return Return(weft::fakes::QueryEvent(event)); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Return(weft::fakes::SynchronizeEvent(event));
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  Call call("cudaEventDestroy");
  Event* event = call.FindEvent(handle);
  if (event == nullptr) return Return(cudaErrorInvalidResourceHandle);
  event->destroyed = true;
  event->record.reset();
  event->capture.reset();
  return Return(call.error());
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return Return(weft::fakes::ElapsedTime(ms, start, end));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  Call call("cudaLaunchHostFunc");
  if (call.error() != 0) return Return(call.error());
  if (function == nullptr) return Return(cudaErrorInvalidValue);
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  if (const int error = call.CheckCurrent(*stream)) return Return(error);
  weft::fakes::Work work{"host function", {}, [=] { function(data); }, {}};
  return Return(call.Enqueue(stream, std::move(work), true));
}

}  // extern "C"
