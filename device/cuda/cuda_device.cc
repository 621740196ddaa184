#include "device/cuda/cuda_device.h"

#include <nvtx3/nvToolsExtCudaRt.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/environment.h"
#include "base/status_macros.h"
#include "device/cuda/cuda_event.h"
#include "device/cuda/cuda_math.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/launch.h"
#include "device/cuda/make.h"
#include "device/cuda/products.h"
#include "device/cuda/replay.h"
#include "device/cuda/status.h"

namespace weft::device {
namespace {

// How many streams the driver keeps apart, unless it is told otherwise.
constexpr int kDefaultConnections = 8;

Clock& ClockOf(const CudaDeviceOptions& options) {
  return options.clock != nullptr ? *options.clock : Clock::Steady();
}

int HardwareQueues() {
  const auto set = base::EnvironmentVariable("CUDA_DEVICE_MAX_CONNECTIONS");
  int connections = 0;
  if (set.has_value() && absl::SimpleAtoi(*set, &connections) && connections > 0) {
    return connections;
  }
  return kDefaultConnections;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const CudaDeviceOptions& options) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    (void)cudaGetLastError();
    return absl::FailedPreconditionError(
        absl::StrCat("there is no usable GPU: ", cudaGetErrorString(error)));
  }
  if (options.ordinal < 0 || options.ordinal >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no CUDA device ", options.ordinal, " among ", count));
  }
  auto marks = std::make_shared<MarkPool>(options.ordinal);
  const OnDevice on_device(options.ordinal);
  cudaDeviceProp properties{};
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, options.ordinal),
                                  "cudaGetDeviceProperties", marks->name()));
  int least = 0;
  int greatest = 0;  // numerically the smaller one
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                                  "cudaDeviceGetStreamPriorityRange", marks->name()));
  if (options.reserved_processors < 0 ||
      options.reserved_processors >= properties.multiProcessorCount) {
    return absl::InvalidArgumentError(
        absl::StrCat("products cannot leave ", options.reserved_processors, " of the ",
                     properties.multiProcessorCount, " processors of ", marks->name()));
  }
  WEFT_RETURN_IF_ERROR(CudaStatus(LoadAllKernels(), "cudaFuncGetAttributes", marks->name()));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<CudaMemory> memory,
                        CudaMemory::Create(marks, ClockOf(options)));
  std::unique_ptr<CudaDevice> device(new CudaDevice(options, std::move(marks), std::move(memory)));
  device->name_ = properties.name;
  device->processors_ = properties.multiProcessorCount;
  const int priorities[] = {least, (least + greatest) / 2, greatest};
  for (int i = 0; i < 3; ++i) device->priorities_[i] = priorities[i];
  const int reserved = options.reserved_processors;
  WEFT_ASSIGN_OR_RETURN(
      device->math_,
      CudaMath::Create(options.ordinal,
                       {.processors = reserved > 0 ? device->processors_ - reserved : 0,
                        .workspace_bytes = options.workspace_bytes}));
  return device;
}

CudaDevice::CudaDevice(const CudaDeviceOptions& options, std::shared_ptr<MarkPool> marks,
                       std::shared_ptr<CudaMemory> memory)
    : options_(options),
      clock_(ClockOf(options)),
      marks_(std::move(marks)),
      memory_(std::move(memory)),
      hardware_queues_(HardwareQueues()),
      retired_(std::make_shared<StreamState>("what has been let go")),
      watcher_(std::make_unique<Watcher>(marks_, clock_)) {}

CudaDevice::~CudaDevice() = default;

CudaDevice* CudaDevice::Of(Device& device) { return dynamic_cast<CudaDevice*>(&device); }

void CudaDevice::After(std::shared_ptr<Mark> mark, std::function<void()> work) {
  watcher_->AddCallback(retired_, retired_->Next(), std::move(mark),
                        [work = std::move(work)](const absl::Status&) { work(); });
}

DeviceIdentity CudaDevice::identity() const { return {name_, ProductLibrary(), 1}; }

std::unique_ptr<Stream> CudaDevice::CreateStream(std::string name, StreamPriority priority) {
  const OnDevice on_device(ordinal());
  cudaStream_t handle = nullptr;
  const cudaError_t error = cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking,
                                                         priorities_[static_cast<int>(priority)]);
  absl::Status created = CudaStatus(error, "cudaStreamCreateWithPriority",
                                    absl::StrCat("stream ", name, " of ", marks_->name()));
  // Asked first: NVTX sets itself up at its first call, unguarded against others.
  if (created.ok() && base::ToolAttached()) nvtxNameCudaStreamA(handle, name.c_str());
  return std::make_unique<CudaStream>(*this, std::move(name), handle, CudaStream::Owner::kWeft,
                                      std::move(created));
}

std::unique_ptr<Event> CudaDevice::CreateEvent() { return std::make_unique<CudaEvent>(clock_); }

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::AdoptStream(void* native, std::string name) {
  // Null is a stream too, the legacy default one.
  return std::make_unique<CudaStream>(*this, std::move(name), static_cast<cudaStream_t>(native),
                                      CudaStream::Owner::kCaller);
}

absl::StatusOr<std::unique_ptr<Event>> CudaDevice::AdoptEvent(void* native) {
  if (native == nullptr) return absl::InvalidArgumentError("a null event cannot be adopted");
  return std::make_unique<AdoptedEvent>(marks_, static_cast<cudaEvent_t>(native), clock_);
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaDevice::Allocate(std::size_t bytes) {
  return memory_->Allocate(bytes);
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaDevice::AllocateHost(std::size_t bytes) {
  return memory_->AllocateHost(bytes);
}

void CudaDevice::Copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  CudaStream::Of(stream).Issue("cudaMemcpyAsync", [&](cudaStream_t handle) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle);
  });
}

absl::Status CudaDevice::CopyNow(void* to, const void* from, std::size_t bytes) {
  return memory_->CopyNow(to, from, bytes);
}

void CudaDevice::Clear(Stream& stream, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  CudaStream::Of(stream).Issue("cudaMemsetAsync", [&](cudaStream_t handle) {
    return cudaMemsetAsync(to, 0, bytes, handle);
  });
}

absl::StatusOr<std::unique_ptr<Replay>> CudaDevice::Record(
    std::function<absl::Status(Stream&)> work) {
  return GraphReplay::Capture(*this, work);
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options) {
  return CudaDevice::Create(options);
}

}  // namespace weft::device
