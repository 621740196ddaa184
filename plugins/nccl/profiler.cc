// The profiler that NCCL loads: NCCL_PROFILER_PLUGIN=weft. It writes what NCCL did for which matrix
// job.
//
// Calls, groups and launches come on the caller's thread; tasks too, or on a thread of CUDA's when
// a graph is replayed; proxy operations and kernels on NCCL's proxy threads. Nothing is assumed of
// their order.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "plugins/nccl/context.h"
#include "plugins/nccl/process.h"
#include "plugins/nccl/profiler_abi.h"
#include "plugins/nccl/recorders.h"

namespace weft::nccl_plugin {
namespace {

constexpr std::size_t kDefaultEvents = 32768;

struct Options {
  std::string pattern;  // empty: nothing is profiled
  std::size_t events = kDefaultEvents;
  bool kernels = true;
  bool proxies = true;
};

void Warn(Logger log, const char* variable, const std::string& value) {
  if (log == nullptr) return;
  log(kLogWarn, kLogProfile, __FILE__, __LINE__,
      "%s is '%s', which is not understood: its default holds", variable, value.c_str());
}

Options ReadOptions(Logger log) {
  Options options;
  options.pattern = Environment("WEFT_NCCL_PROFILE");
  if (options.pattern.empty()) return options;
  const std::string events = Environment("WEFT_NCCL_PROFILE_EVENTS");
  if (!events.empty()) {
    std::size_t number = 0;
    const char* const end = events.data() + events.size();
    const auto [stop, fault] = std::from_chars(events.data(), end, number);
    if (fault == std::errc() && stop == end && number >= 1 && number <= kMostEvents) {
      options.events = number;
    } else {
      Warn(log, "WEFT_NCCL_PROFILE_EVENTS", events);
    }
  }
  const std::string kinds = Environment("WEFT_NCCL_PROFILE_KINDS");
  if (kinds == "calls") {
    options.kernels = options.proxies = false;
  } else if (kinds == "kernels") {
    options.proxies = false;
  } else if (kinds == "proxies") {
    options.kernels = false;
  } else if (!kinds.empty() && kinds != "all") {
    Warn(log, "WEFT_NCCL_PROFILE_KINDS", kinds);
  }
  return options;
}

std::optional<weft_nccl_context> CurrentContext() {
  weft_nccl_context context = {};
  if (weft_nccl_context_get(&context) == 0) return std::nullopt;
  return context;
}

Job JobOf(const std::optional<weft_nccl_context>& context) {
  Job job;
  if (!context) return job;
  job.known = true;
  job.step = context->step;
  job.op = context->op;
  job.matrix = context->matrix;
  if (context->name != nullptr) std::strncpy(job.name, context->name, sizeof job.name - 1);
  return job;
}

void Initialize(void** context, std::uint64_t communicator, int* mask, const char* name, int nodes,
                int ranks, int rank, Logger log, int api_bits) {
  const Options options = ReadOptions(log);
  if (options.pattern.empty()) return;
  const std::optional<weft_nccl_context> current = CurrentContext();
  CommunicatorName whose;
  whose.id = communicator;
  whose.name = name == nullptr ? "" : name;
  whose.rank = rank;
  whose.ranks = ranks;
  whose.nodes = nodes;
  whose.process = current && current->rank >= 0 ? current->rank : rank;
  whose.pattern = options.pattern;
  *context = Open(std::move(whose), options.events, options.kernels, log);
  if (*context == nullptr || mask == nullptr) return;
  const int bits = api_bits | kBitColl | kBitP2p | (options.proxies ? kBitProxyOp : 0) |
                   (options.kernels ? kBitKernelCh : 0);
  // NCCL reads this one int, which all communicators share, from any thread.
  __atomic_store_n(mask, bits, __ATOMIC_RELAXED);
}

Event TaskOf(const CollFields& from) {
  Event event;
  event.kind = Kind::kTask;
  event.sequence = from.sequence;
  event.function = from.function;
  event.count = from.count;
  event.root = from.root;
  event.datatype = from.datatype;
  event.channels = from.channels;
  event.algorithm = from.algorithm;
  event.protocol = from.protocol;
  return event;
}

Event TaskOf(const P2pFields& from) {
  Event event;
  event.kind = Kind::kTask;
  event.is_p2p = true;
  event.function = from.function;
  event.datatype = from.datatype;
  event.count = from.count;
  event.peer = from.peer;
  event.channels = from.channels;
  return event;
}

// Of the kinds that both versions describe alike; nothing for others and for what is not ours.
template <typename Descriptor>
std::optional<Event> CommonEvent(Recorder& recorder, const Descriptor& from) {
  Event event;
  switch (from.type) {
    case kBitColl:
      return TaskOf(from.coll);
    case kBitP2p:
      return TaskOf(from.p2p);
    case kBitProxyOp:
      if (from.proxy_op.pid != ProcessId()) {
        recorder.CountForeign();  // its parent is a handle of that process
        return std::nullopt;
      }
      event.kind = Kind::kProxyOp;
      event.channel = from.proxy_op.channel;
      event.peer = from.proxy_op.peer;
      event.steps = from.proxy_op.steps;
      event.chunk_bytes = from.proxy_op.chunk_bytes;
      event.is_send = from.proxy_op.is_send != 0;
      return event;
    case kBitKernelCh:
      event.kind = Kind::kKernel;
      event.channel = from.kernel_ch.channel;
      event.gpu_begin_ns = from.kernel_ch.gpu_ns;
      return event;
    default:
      return std::nullopt;
  }
}

std::optional<Event> EventOf(Recorder& recorder, const DescriptorV4& from) {
  return CommonEvent(recorder, from);
}

std::optional<Event> EventOf(Recorder& recorder, const DescriptorV5& from) {
  Event event;
  switch (from.type) {
    case kBitGroupApi:
      event.kind = Kind::kGroupApi;
      event.captured = from.group_api.captured;
      event.depth = from.group_api.depth;
      return event;
    case kBitCollApi:
      event.kind = Kind::kCallApi;
      event.function = from.coll_api.function;
      event.count = from.coll_api.count;
      event.datatype = from.coll_api.datatype;
      event.root = from.coll_api.root;
      event.captured = from.coll_api.captured;
      return event;
    case kBitP2pApi:
      event.kind = Kind::kCallApi;
      event.is_p2p = true;
      event.function = from.p2p_api.function;
      event.count = from.p2p_api.count;
      event.datatype = from.p2p_api.datatype;
      event.captured = from.p2p_api.captured;
      return event;
    case kBitKernelLaunch:
      event.kind = Kind::kKernelLaunch;
      return event;
    default:
      return CommonEvent(recorder, from);
  }
}

// Whether the event is what the calling thread works for now: a call, and where calls are not told
// of (version 4) a task. A task of version 5 belongs to its call, whatever the thread does at that
// moment.
bool TakesContext(const Event& event, bool has_calls) {
  return event.kind == Kind::kCallApi || (event.kind == Kind::kTask && !has_calls);
}

template <typename Descriptor>
void Start(void* context, void** handle, const Descriptor& descriptor, bool has_calls) {
  const Access access = Enter(context);
  if (access.recorder == nullptr) return;
  Recorder& recorder = *access.recorder;
  const std::optional<Event> event = EventOf(recorder, descriptor);
  if (!event) return;
  if (event->kind != Kind::kKernel && event->kind != Kind::kProxyOp) {
    recorder.FlushIfAsked(weft_nccl_profile_flushes());
  }
  const Handle parent = Decode(descriptor.parent);
  const bool ours = parent.slot == access.handle.slot && parent.use == access.handle.use;
  Job job;
  std::int32_t rank = -1;
  const bool takes_context = TakesContext(*event, has_calls);
  if (takes_context) {
    const std::optional<weft_nccl_context> current = CurrentContext();
    job = JobOf(current);
    if (current) rank = current->rank;
  }
  const EventId id =
      recorder.Start(*event, ours ? parent.event : EventId{}, descriptor.parent != nullptr && !ours,
                     takes_context ? &job : nullptr, rank);
  if (id.index == 0) return;
  *handle = Encode({.slot = access.handle.slot, .use = access.handle.use, .event = id});
}

template <typename Descriptor>
int StartEvent(void* context, void** handle, Descriptor* descriptor, bool has_calls) {
  if (handle == nullptr) return kSuccess;
  *handle = nullptr;  // NCCL's variable may hold an old one
  if (context == nullptr || descriptor == nullptr) return kSuccess;
  return Guarded([&] { Start(context, handle, *descriptor, has_calls); });
}

int StopEvent(void* handle) {
  return Guarded([&] {
    const Access access = Enter(handle);
    if (access.recorder != nullptr) access.recorder->Stop(access.handle.event);
  });
}

int RecordState(void* handle, int state, StateArguments* arguments) {
  if (state != kKernelChStop && state != kProxyOpInProgress && state != kGroupEndApiStart) {
    return kSuccess;
  }
  return Guarded([&] {
    const Access access = Enter(handle);
    if (access.recorder == nullptr) return;
    const bool timed = state == kKernelChStop && arguments != nullptr;
    access.recorder->Mark(access.handle.event, timed ? arguments->gpu_ns : 0);
  });
}

int Finalize(void* context) {
  return Guarded([&] {
    if (context != nullptr) Close(context);
  });
}

int InitV5(void** context, std::uint64_t communicator, int* mask, const char* name, int nodes,
           int ranks, int rank, Logger log) {
  if (context == nullptr) return kSuccess;
  *context = nullptr;
  return Guarded([&] {
    Initialize(context, communicator, mask, name, nodes, ranks, rank, log,
               kBitGroupApi | kBitCollApi | kBitP2pApi | kBitKernelLaunch);
  });
}

int StartV5(void* context, void** handle, DescriptorV5* descriptor) {
  return StartEvent(context, handle, descriptor, true);
}

int InitV4(void** context, int* mask, const char* name, std::uint64_t communicator, int nodes,
           int ranks, int rank, Logger log) {
  if (context == nullptr) return kSuccess;
  *context = nullptr;
  return Guarded(
      [&] { Initialize(context, communicator, mask, name, nodes, ranks, rank, log, 0); });
}

int StartV4(void* context, void** handle, DescriptorV4* descriptor) {
  return StartEvent(context, handle, descriptor, false);
}

}  // namespace
}  // namespace weft::nccl_plugin

extern "C" {

__attribute__((visibility("default"))) extern const weft::nccl_plugin::ProfilerV5 ncclProfiler_v5;
__attribute__((visibility("default"))) extern const weft::nccl_plugin::ProfilerV4 ncclProfiler_v4;

const weft::nccl_plugin::ProfilerV5 ncclProfiler_v5 = {"Weft",
                                                       weft::nccl_plugin::InitV5,
                                                       weft::nccl_plugin::StartV5,
                                                       weft::nccl_plugin::StopEvent,
                                                       weft::nccl_plugin::RecordState,
                                                       weft::nccl_plugin::Finalize};
const weft::nccl_plugin::ProfilerV4 ncclProfiler_v4 = {"Weft",
                                                       weft::nccl_plugin::InitV4,
                                                       weft::nccl_plugin::StartV4,
                                                       weft::nccl_plugin::StopEvent,
                                                       weft::nccl_plugin::RecordState,
                                                       weft::nccl_plugin::Finalize};

}  // extern "C"
