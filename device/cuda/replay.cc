#include "device/cuda/replay.h"

#include <utility>

#include "base/status_macros.h"
#include "device/cuda/status.h"

namespace weft::device {
namespace {

void Destroy(const MarkPool& marks, cudaGraphExec_t graph) {
  if (!marks.failure().ok()) return;
  const OnDevice on_device(marks.ordinal());
  const BesideCaptures beside_captures;
  (void)cudaGraphExecDestroy(graph);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GraphReplay>> GraphReplay::Capture(
    CudaDevice& device, const std::function<absl::Status(Stream&)>& work) {
  const OnDevice on_device(device.ordinal());
  const std::string& who = device.marks()->name();
  std::unique_ptr<Stream> owned = device.CreateStream("weft capture", StreamPriority::kNormal);
  CudaStream& stream = CudaStream::Of(*owned);
  WEFT_RETURN_IF_ERROR(stream.status());
  // Nothing is allocated while the work is captured.
  WEFT_RETURN_IF_ERROR(stream.Workspace().status());
  WEFT_ASSIGN_OR_RETURN(cudaGraph_t graph, stream.Capture(work));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
  (void)cudaGraphDestroy(graph);
  WEFT_RETURN_IF_ERROR(CudaStatus(error, "cudaGraphInstantiate", who));
  auto replay = std::unique_ptr<GraphReplay>(
      new GraphReplay(device, exec, std::shared_ptr<Buffer>(stream.TakeWorkspace())));
  // Otherwise the first launch uploads it.
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaGraphUpload(exec, stream.handle()), "cudaGraphUpload", who));
  return replay;
}

GraphReplay::~GraphReplay() {
  if (end_ == nullptr) {
    Destroy(*device_.marks(), graph_);
    return;
  }
  device_.After(std::move(end_), [marks = device_.marks(), graph = graph_, workspace = workspace_] {
    Destroy(*marks, graph);
  });
}

absl::Status GraphReplay::Enqueue(Stream& stream) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  // As everything else that is enqueued there.
  if (!cuda_stream.status().ok()) return absl::OkStatus();
  cuda_stream.Issue("cudaGraphLaunch",
                    [&](cudaStream_t handle) { return cudaGraphLaunch(graph_, handle); });
  WEFT_RETURN_IF_ERROR(cuda_stream.status());
  WEFT_ASSIGN_OR_RETURN(end_, cuda_stream.Here());
  return absl::OkStatus();
}

}  // namespace weft::device
