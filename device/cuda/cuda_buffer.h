// Memory of a GPU, and memory of the host that it reaches.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "device/cuda/mark_pool.h"
#include "weft/buffer.h"
#include "weft/clock.h"

namespace weft::device {

// Where a device's buffers come from: its default memory pool, which keeps what it once had, since
// giving memory back to the system and getting it again waits for all streams. Thread-safe.
class CudaMemory : public std::enable_shared_from_this<CudaMemory> {
 public:
  static absl::StatusOr<std::shared_ptr<CudaMemory>> Create(std::shared_ptr<MarkPool> pool,
                                                            Clock& clock);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // 256-byte aligned, and free to be used by every stream.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes);
  // Page-locked.
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateHost(std::size_t bytes);
  // Any memory to any memory; blocks until it is there.
  absl::Status CopyNow(void* to, const void* from, std::size_t bytes);

 private:
  class DeviceBuffer;
  class HostBuffer;
  CudaMemory(std::shared_ptr<MarkPool> pool, Clock& clock, cudaStream_t allocations,
             cudaStream_t copies)
      : pool_(std::move(pool)), clock_(clock), allocations_(allocations), copies_(copies) {}

  // Until the stream has come to its present end, or for so long.
  absl::Status Await(cudaStream_t stream, absl::Duration timeout);
  void Free(void* data);

  const std::shared_ptr<MarkPool> pool_;
  Clock& clock_;
  const cudaStream_t allocations_;
  const cudaStream_t copies_;
};

}  // namespace weft::device
