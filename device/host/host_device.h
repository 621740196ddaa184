// The CPU as a device.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "device/host/host_math.h"
#include "weft/device.h"

namespace weft::device {

class HostDevice final : public Device {
 public:
  // Requires options.threads >= 1.
  explicit HostDevice(const HostDeviceOptions& options);

  std::string_view kind() const override { return "host"; }
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
  Math& math() override { return math_; }
  int hardware_queues() const override { return 0; }
  Clock& clock() override { return clock_; }

 private:
  const int threads_;
  Clock& clock_;
  HostMath math_;
};

}  // namespace weft::device
