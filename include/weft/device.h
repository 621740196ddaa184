// The device seam: where streams, events, memory and products come from.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/buffer.h"
#include "weft/clock.h"
#include "weft/event.h"
#include "weft/math.h"
#include "weft/stream.h"

namespace weft {

// When the device is short of room, work of a higher priority goes first. kHigh is for work that is
// short and that others wait for, like collectives; kRaised for work that must not queue behind the
// trainer's own, since its results have yet to travel; the trainer's streams are kNormal. A hint;
// on the host it needs the right to raise a thread's priority (CAP_SYS_NICE) and is ignored
// without.
enum class StreamPriority { kNormal, kRaised, kHigh };

// What the speed of a device depends on, for people and for telling measurements apart.
struct DeviceIdentity {
  std::string name;          // "AMD EPYC, 2 CPUs"
  std::string math_library;  // with its version, "oneDNN 3.1.1"
  int threads = 1;           // that one product may use
};

// One rank's device. Thread-safe. Outlives everything it created. Its own calls report errors as
// statuses; only what the standard library throws for want of host memory may leave them.
// Exceptions of the work that runs in its streams: weft/stream.h.
class Device {
 public:
  virtual ~Device() = default;

  // "host", later "cuda".
  virtual std::string_view kind() const = 0;
  virtual DeviceIdentity identity() const = 0;

  virtual std::unique_ptr<Stream> CreateStream(
      std::string name, StreamPriority priority = StreamPriority::kNormal) = 0;
  virtual std::unique_ptr<Event> CreateEvent() = 0;

  // ResourceExhausted when there is no memory.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) = 0;

  // Copies `bytes` in stream order; both ranges in this device's memory, not overlapping.
  virtual void Copy(Stream& stream, void* to, const void* from, std::size_t bytes) = 0;

  // Copies `bytes` now, blocking the host and ordered with no stream.
  virtual absl::Status CopyNow(void* to, const void* from, std::size_t bytes) = 0;

  // Sets `bytes` bytes to zero in stream order.
  virtual void Clear(Stream& stream, void* to, std::size_t bytes) = 0;

  virtual Math& math() = 0;

  // The clock of RecordTime.
  virtual Clock& clock() = 0;
};

struct HostDeviceOptions {
  // Threads that one product may use, at least 1. Products with equal arguments give equal bits
  // only under the same number.
  int threads = 1;
  // Time base; null means Clock::Steady(). Must outlive the device.
  Clock* clock = nullptr;
};

// The CPU as a device: a stream is a worker thread, products go through oneDNN.
// InvalidArgument when threads < 1.
absl::StatusOr<std::unique_ptr<Device>> CreateHostDevice(const HostDeviceOptions& options = {});

}  // namespace weft
