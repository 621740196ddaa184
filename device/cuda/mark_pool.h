// The events of a device, and whether it still works.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft::device {

// Thread-safe. Owned by the device and by every mark.
class MarkPool {
 public:
  explicit MarkPool(int ordinal);
  // Destroys the events, unless the device has failed.
  ~MarkPool();
  MarkPool(const MarkPool&) = delete;
  MarkPool& operator=(const MarkPool&) = delete;

  // An event that nobody else records.
  absl::StatusOr<cudaEvent_t> Take(bool timed);
  void Give(cudaEvent_t event, bool timed);

  // Whether the device has passed the place at which `event` was recorded. Never blocks, and may be
  // called while another thread captures. The error is the device's.
  absl::StatusOr<bool> Passed(cudaEvent_t event);

  // The first error that says that the device can do nothing more, or OK.
  absl::Status failure() const;
  int ordinal() const { return ordinal_; }
  // "CUDA device 0"
  const std::string& name() const { return name_; }

 private:
  const int ordinal_;
  const std::string name_;
  mutable std::mutex mutex_;
  std::vector<cudaEvent_t> idle_[2];  // by whether they are timed
  absl::Status failure_;
};

}  // namespace weft::device
