// Work of a stream as a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/mark.h"
#include "weft/buffer.h"
#include "weft/device.h"

namespace weft::device {

// Destruction waits for nothing: what a launch under way needs goes when it has passed.
class GraphReplay final : public Replay {
 public:
  // Captures on a stream made for it, in the calling thread alone.
  static absl::StatusOr<std::unique_ptr<GraphReplay>> Capture(
      CudaDevice& device, const std::function<absl::Status(Stream&)>& work);
  ~GraphReplay() override;
  GraphReplay(const GraphReplay&) = delete;
  GraphReplay& operator=(const GraphReplay&) = delete;

  absl::Status Enqueue(Stream& stream) override;

 private:
  GraphReplay(CudaDevice& device, cudaGraphExec_t graph, std::shared_ptr<Buffer> workspace)
      : device_(device), graph_(graph), workspace_(std::move(workspace)) {}

  CudaDevice& device_;
  const cudaGraphExec_t graph_;
  // Its products' own: other work of the stream that launches it uses the stream's.
  const std::shared_ptr<Buffer> workspace_;
  std::shared_ptr<Mark> end_;  // of the last launch
};

}  // namespace weft::device
