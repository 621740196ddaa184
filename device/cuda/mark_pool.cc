#include "device/cuda/mark_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/cuda/guards.h"
#include "device/cuda/mark.h"
#include "device/cuda/status.h"

namespace weft::device {

MarkPool::MarkPool(int ordinal) : ordinal_(ordinal), name_(absl::StrCat("CUDA device ", ordinal)) {}

MarkPool::~MarkPool() {
  if (!failure_.ok()) return;
  const OnDevice on_device(ordinal_);
  for (const auto& events : idle_) {
    for (cudaEvent_t event : events) (void)cudaEventDestroy(event);
  }
}

absl::StatusOr<cudaEvent_t> MarkPool::Take(bool timed) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (auto& idle = idle_[timed ? 1 : 0]; !idle.empty()) {
      cudaEvent_t event = idle.back();
      idle.pop_back();
      return event;
    }
  }
  const OnDevice on_device(ordinal_);
  const BesideCaptures beside_captures;
  cudaEvent_t event = nullptr;
  const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
  const cudaError_t error = cudaEventCreateWithFlags(&event, flags);
  if (error != cudaSuccess) return CudaStatus(error, "cudaEventCreateWithFlags", name_);
  return event;
}

void MarkPool::Give(cudaEvent_t event, bool timed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_[timed ? 1 : 0].push_back(event);
}

absl::Status MarkPool::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

absl::StatusOr<bool> MarkPool::Passed(cudaEvent_t event) {
  const OnDevice on_device(ordinal_);
  const BesideCaptures beside_captures;
  const cudaError_t error = cudaEventQuery(event);
  if (error == cudaSuccess) return true;
  if (error == cudaErrorNotReady) {
    // No error, but the runtime keeps it as the thread's last one.
    (void)cudaGetLastError();
    return false;
  }
  absl::Status status = CudaStatus(error, "cudaEventQuery", name_);
  // These two are about an event that somebody else made.
  if (error == cudaErrorInvalidResourceHandle || error == cudaErrorCapturedEvent) return status;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.ok()) failure_ = std::move(status);
  return failure_;
}

Mark::Mark(std::shared_ptr<MarkPool> pool, cudaEvent_t event, bool timed)
    : pool_(std::move(pool)), event_(event), timed_(timed) {}

Mark::~Mark() { pool_->Give(event_, timed_); }

absl::StatusOr<bool> Mark::Reached() const { return pool_->Passed(event_); }

}  // namespace weft::device
