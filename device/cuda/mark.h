// Points of CUDA streams: pooled events, each recorded once in its life as a mark.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/statusor.h"

namespace weft::device {

class MarkPool;

// A recorded place in a stream. Thread-safe. Its event goes back to the pool with the last
// reference: none is destroyed while the device lives, since that can block behind a kernel that
// hangs.
class Mark {
 public:
  Mark(std::shared_ptr<MarkPool> pool, cudaEvent_t event, bool timed);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  cudaEvent_t event() const { return event_; }
  bool timed() const { return timed_; }
  // Never blocks, and may be called while another thread captures. The error is the device's.
  absl::StatusOr<bool> Reached() const;

 private:
  const std::shared_ptr<MarkPool> pool_;
  const cudaEvent_t event_;
  const bool timed_;
};

}  // namespace weft::device
