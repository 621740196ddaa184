// The device seam: where streams, events, memory and products come from.
#pragma once

#include <cstddef>
#include <functional>
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

#pragma GCC visibility push(default)
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

// Work that is enqueued again and again with the same memory.
class Replay {
 public:
  virtual ~Replay() = default;

  // Enqueues the work on `stream`. One replay runs on one stream at a time.
  virtual absl::Status Enqueue(Stream& stream) = 0;
};

// One rank's device. Thread-safe. Outlives everything it created. Its own calls report errors as
// statuses; only what the standard library throws for want of host memory may leave them.
// Exceptions of the work that runs in its streams: weft/stream.h.
class Device {
 public:
  virtual ~Device() = default;

  // "host" or "cuda".
  virtual std::string_view kind() const = 0;
  virtual DeviceIdentity identity() const = 0;

  virtual std::unique_ptr<Stream> CreateStream(
      std::string name, StreamPriority priority = StreamPriority::kNormal) = 0;
  virtual std::unique_ptr<Event> CreateEvent() = 0;

  // A stream or event of the device's own library (CUDA: cudaStream_t, cudaEvent_t), which stays
  // the caller's and must outlive what is returned. Who enqueues on the stream with other means
  // than this one's does so from the same thread. An adopted event is not to be recorded by streams
  // of Weft. InvalidArgument where the device has no such things.
  virtual absl::StatusOr<std::unique_ptr<Stream>> AdoptStream(void* native, std::string name) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> AdoptEvent(void* native) = 0;

  // ResourceExhausted when there is no memory.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) = 0;

  // Memory that the host reads and writes like its own and that Copy() takes too (page-locked).
  // What a stream writes there may be read when an event recorded behind it is complete.
  // ResourceExhausted when there is none.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> AllocateHost(std::size_t bytes) = 0;

  // Copies `bytes` in stream order; both ranges from Allocate() or AllocateHost(), or memory that
  // the device reaches as well, and not overlapping.
  virtual void Copy(Stream& stream, void* to, const void* from, std::size_t bytes) = 0;

  // Copies `bytes` now, blocking the host and ordered with no stream; either range may be any
  // memory of the host.
  virtual absl::Status CopyNow(void* to, const void* from, std::size_t bytes) = 0;

  // Sets `bytes` bytes to zero in stream order.
  virtual void Clear(Stream& stream, void* to, std::size_t bytes) = 0;

  // What `work` enqueues on the stream it is given, to be enqueued again as often as wanted: calls
  // of math(), Copy() and Clear(), no events, times and host functions. `work` may be called now or
  // at any Enqueue(), on the caller's thread. CUDA: a graph, made now and launched as one.
  virtual absl::StatusOr<std::unique_ptr<Replay>> Record(
      std::function<absl::Status(Stream&)> work) = 0;

  virtual Math& math() = 0;

  // The clock of RecordTime.
  virtual Clock& clock() = 0;

  // How many streams the hardware keeps apart: beyond that, streams share a queue and wait for each
  // other. 0: any number.
  virtual int hardware_queues() const = 0;
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

struct CudaDeviceOptions {
  // As cudaSetDevice counts.
  int ordinal = 0;
  // What products of one stream may work in.
  std::size_t workspace_bytes = std::size_t{32} << 20;
  // Multiprocessors that products leave to collectives that run beside them. Other numbers can give
  // other bits.
  int reserved_processors = 0;
  // Time base; null means Clock::Steady(). Must outlive the device.
  Clock* clock = nullptr;
};

// A GPU, through libweft-cuda.so: WEFT_CUDA_PLUGIN may name it (docs/cuda.md). NotFound where that
// library, or one that it needs, is not there, saying which; FailedPrecondition where there is no
// such GPU.
//
// What streams do here differs from the host's in two ways. The device runs ahead of the host:
// items enqueued before a failure was known run all the same, and what waits in another stream for
// an event of a failed one does not fail with it. And functions given to EnqueueAlways() and times
// asked for with RecordTime() come from a thread that looks on: soon after their place was reached,
// in their order, but the stream does not wait for them.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options = {});

}  // namespace weft
#pragma GCC visibility pop
