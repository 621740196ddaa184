#include "device/host/host_device.h"

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "device/host/host_buffer.h"
#include "device/host/host_event.h"
#include "device/host/host_stream.h"

namespace weft::device {

HostDevice::HostDevice(const HostDeviceOptions& options)
    : threads_(options.threads),
      clock_(options.clock != nullptr ? *options.clock : Clock::Steady()),
      math_(MatMulOptions{.threads = options.threads}) {}

std::unique_ptr<Stream> HostDevice::CreateStream(std::string name, StreamPriority priority) {
  return std::make_unique<HostStream>(std::move(name), threads_, priority, clock_);
}

std::unique_ptr<Event> HostDevice::CreateEvent() { return std::make_unique<HostEvent>(clock_); }

absl::StatusOr<std::unique_ptr<Buffer>> HostDevice::Allocate(std::size_t bytes) {
  return HostBuffer::Create(bytes);
}

void HostDevice::Copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  stream.Enqueue([to, from, bytes] {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  });
}

absl::Status HostDevice::CopyNow(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

void HostDevice::Clear(Stream& stream, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  stream.Enqueue([to, bytes] {
    std::memset(to, 0, bytes);
    return absl::OkStatus();
  });
}

}  // namespace weft::device
