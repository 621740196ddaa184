// Capture of streams, and graphs.
#include <memory>
#include <utility>

#include "tests/fakes/cudart/common.h"

namespace weft::fakes {
namespace {

int Instantiate(cudaGraphExec_t* exec, cudaGraph_t handle, unsigned long long flags) {
  Call call("cudaGraphInstantiate");
  if (call.error() != 0) return call.error();
  const auto graph = call.world().graphs.find(handle);
  if (exec == nullptr || graph == call.world().graphs.end()) {
    call.Misuse("of a graph that does not exist");
    return kInvalidValue;
  }
  constexpr unsigned long long kModelled = cudaGraphInstantiateFlagAutoFreeOnLaunch |
                                           cudaGraphInstantiateFlagUpload |
                                           cudaGraphInstantiateFlagUseNodePriority;
  if ((flags & ~kModelled) != 0) return kNotSupported;
  auto made = std::make_shared<GraphExec>(GraphExec{graph->second->body, {}, {}});
  *exec = reinterpret_cast<cudaGraphExec_t>(made.get());
  call.world().objects[made.get()] = "instantiated graph";
  call.world().execs[made.get()] = std::move(made);
  return kSuccess;
}

int Launch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  Call call("cudaGraphLaunch");
  if (call.error() != 0) return call.error();
  const auto exec = call.world().execs.find(handle);
  if (exec == call.world().execs.end()) {
    call.Misuse("of a graph that does not exist");
    return kInvalidValue;
  }
  Stream* stream = call.FindStream(stream_handle);
  if (stream == nullptr) return kInvalidResourceHandle;
  if (stream->capture != nullptr) {
    call.Misuse("into a capture is not modelled");
    return kNotSupported;
  }
  if (const int implicit = call.CheckImplicit(*stream)) return implicit;
  return LaunchGraph(call.world(), call.lock(), exec->second, stream);
}

}  // namespace
}  // namespace weft::fakes

using weft::fakes::Call;
using weft::fakes::Return;
using weft::fakes::Stream;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
  Call call("cudaStreamBeginCapture");
  if (call.error() != 0) return Return(call.error());
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  return Return(weft::fakes::BeginCapture(call.world(), stream, mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  Call call("cudaStreamEndCapture");
  if (call.error() != 0) return Return(call.error());
  if (graph == nullptr) return Return(cudaErrorInvalidValue);
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  std::shared_ptr<weft::fakes::Graph> made;
  *graph = nullptr;
  const int error = weft::fakes::EndCapture(call.world(), stream, &made);
  if (error != 0) return Return(error);
  *graph = reinterpret_cast<cudaGraph_t>(made.get());
  call.world().objects[made.get()] = "graph";
  call.world().graphs[made.get()] = std::move(made);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
// The graph that is being captured and its nodes are not to be seen.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  Call call("cudaStreamGetCaptureInfo");
  if (call.error() != 0) return Return(call.error());
  if (status == nullptr) return Return(cudaErrorInvalidValue);
  const Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  if (const int implicit = call.CheckImplicit(*stream)) return Return(implicit);
  const weft::fakes::Capture* capture = stream->capture.get();
  *status = capture == nullptr ? cudaStreamCaptureStatusNone
            : capture->invalid ? cudaStreamCaptureStatusInvalidated
                               : cudaStreamCaptureStatusActive;
  if (id != nullptr) *id = capture == nullptr ? 0 : capture->id;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode) {
  if (mode == nullptr) return Return(cudaErrorInvalidValue);
  Call call("cudaThreadExchangeStreamCaptureMode", Call::Kind::kQuiet);
  const int before = std::exchange(call.thread().capture_mode, static_cast<int>(*mode));
  *mode = static_cast<cudaStreamCaptureMode>(before);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  return Return(weft::fakes::Instantiate(exec, graph, flags));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return Return(weft::fakes::Instantiate(exec, graph, flags));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return Return(weft::fakes::Launch(exec, stream));
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) {
  Call call("cudaGraphUpload");
  if (call.error() != 0) return Return(call.error());
  return Return(call.world().execs.contains(exec) ? cudaSuccess : cudaErrorInvalidValue);
}
// Launches that are under way end all the same.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  Call call("cudaGraphExecDestroy");
  if (call.world().execs.erase(exec) == 0) {
    call.Misuse("of a graph that does not exist");
    return Return(cudaErrorInvalidValue);
  }
  call.world().objects.erase(exec);
  return Return(call.error());
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Call call("cudaGraphDestroy");
  if (call.world().graphs.erase(graph) == 0) {
    call.Misuse("of a graph that does not exist");
    return Return(cudaErrorInvalidValue);
  }
  call.world().objects.erase(graph);
  return Return(call.error());
}
// Waits of captured streams are edges, not nodes.
cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  Call call("cudaGraphGetNodes");
  const auto graph = call.world().graphs.find(handle);
  if (count == nullptr || graph == call.world().graphs.end()) return Return(cudaErrorInvalidValue);
  std::size_t found = 0;
  for (weft::fakes::CapturedOp& op : graph->second->body->ops) {
    if (op.kind == weft::fakes::CapturedOp::Kind::kWait) continue;
    if (nodes != nullptr && found < *count) nodes[found] = reinterpret_cast<cudaGraphNode_t>(&op);
    ++found;
  }
  *count = nodes == nullptr ? found : std::min(found, *count);
  return Return(call.error());
}

}  // extern "C"
