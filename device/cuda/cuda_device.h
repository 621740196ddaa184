// A GPU as a device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/cuda/cuda_buffer.h"
#include "device/cuda/guards.h"
#include "device/cuda/mark_pool.h"
#include "device/cuda/watcher.h"
#include "weft/device.h"

namespace weft::device {

class CudaDevice final : public Device {
 public:
  // FailedPrecondition where there is no such GPU.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaDeviceOptions& options);
  ~CudaDevice() override;

  // The CUDA device that `device` is, or null.
  static CudaDevice* Of(Device& device);

  int ordinal() const { return marks_->ordinal(); }
  // Makes it the calling thread's current device until the end of the scope.
  class Current;

  // Of the device: "NVIDIA H200".
  const std::string& name() const { return name_; }
  int processors() const { return processors_; }
  std::size_t workspace_bytes() const { return options_.workspace_bytes; }
  const std::shared_ptr<MarkPool>& marks() const { return marks_; }
  Watcher& watcher() { return *watcher_; }
  // Calls `work` once `mark` is reached, whether or not anything else still knows of it.
  void After(std::shared_ptr<Mark> mark, std::function<void()> work);

  std::string_view kind() const override { return "cuda"; }
  DeviceIdentity identity() const override;
  std::unique_ptr<Stream> CreateStream(std::string name, StreamPriority priority) override;
  std::unique_ptr<Event> CreateEvent() override;
  absl::StatusOr<std::unique_ptr<Stream>> AdoptStream(void* native, std::string name) override;
  absl::StatusOr<std::unique_ptr<Event>> AdoptEvent(void* native) override;
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) override;
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateHost(std::size_t bytes) override;
  void Copy(Stream& stream, void* to, const void* from, std::size_t bytes) override;
  absl::Status CopyNow(void* to, const void* from, std::size_t bytes) override;
  void Clear(Stream& stream, void* to, std::size_t bytes) override;
  absl::StatusOr<std::unique_ptr<Replay>> Record(
      std::function<absl::Status(Stream&)> work) override;
  Math& math() override { return *math_; }
  int hardware_queues() const override { return hardware_queues_; }
  Clock& clock() override { return clock_; }

 private:
  CudaDevice(const CudaDeviceOptions& options, std::shared_ptr<MarkPool> marks,
             std::shared_ptr<CudaMemory> memory);

  const CudaDeviceOptions options_;
  Clock& clock_;
  const std::shared_ptr<MarkPool> marks_;
  const std::shared_ptr<CudaMemory> memory_;
  const int hardware_queues_;
  std::string name_;
  int processors_ = 0;
  int priorities_[3] = {};  // by StreamPriority
  std::unique_ptr<Math> math_;
  const std::shared_ptr<StreamState> retired_;  // what After() waits with
  std::unique_ptr<Watcher> watcher_;
};

class CudaDevice::Current : public OnDevice {
 public:
  explicit Current(const CudaDevice& device) : OnDevice(device.ordinal()) {}
};

}  // namespace weft::device
