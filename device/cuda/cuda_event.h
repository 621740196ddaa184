// Events of CUDA streams: which mark they stand at.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "device/cuda/mark.h"
#include "device/cuda/mark_pool.h"
#include "device/cuda/stream_state.h"
#include "weft/clock.h"
#include "weft/event.h"

namespace weft::device {

// A recorded place. Without a mark it is complete, with the stream's failure.
struct EventPoint {
  std::shared_ptr<const StreamState> stream;
  std::int64_t position = 0;
  std::shared_ptr<Mark> mark;

  // An aborted stream's points are not waited for.
  absl::StatusOr<bool> Reached() const;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(Clock& clock) : clock_(clock) {}

  absl::StatusOr<bool> Query() const override;
  absl::Status Synchronize(absl::Duration timeout) const override;

  void Move(EventPoint point);
  // Without a stream where the event was never recorded.
  EventPoint point() const;

 private:
  Clock& clock_;
  mutable std::mutex mutex_;
  EventPoint point_;
};

// Somebody else's cudaEvent_t.
class AdoptedEvent final : public Event {
 public:
  AdoptedEvent(std::shared_ptr<MarkPool> pool, cudaEvent_t event, Clock& clock)
      : pool_(std::move(pool)), event_(event), clock_(clock) {}

  absl::StatusOr<bool> Query() const override;
  absl::Status Synchronize(absl::Duration timeout) const override;
  cudaEvent_t event() const { return event_; }

 private:
  const std::shared_ptr<MarkPool> pool_;
  const cudaEvent_t event_;
  Clock& clock_;
};

}  // namespace weft::device
