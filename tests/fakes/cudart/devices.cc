// Devices, errors and versions. A device looks like an H200.
#include <cstring>
#include <utility>

#include "tests/fakes/cudart/common.h"

namespace weft::fakes {
namespace {

constexpr int kMajor = 9, kMinor = 0;

bool Exists(Call& call, int device) {
  return device >= 0 && device < static_cast<int>(call.world().devices.size());
}

int SynchronizeDevice() {
  Call call("cudaDeviceSynchronize", Call::Kind::kUnsafe);
  if (call.error() != 0) return call.error();
  World& world = call.world();
  const int device = call.thread().device;
  std::vector<std::shared_ptr<Mark>> tails;
  for (const Stream& stream : world.streams) {
    if (stream.device == device && stream.tail != nullptr) tails.push_back(stream.tail);
  }
  const auto done = [&] {
    for (const auto& tail : tails) {
      if (!tail->done) return false;
    }
    return true;
  };
  if (const int error = call.Block(" of device " + std::to_string(device), done)) return error;
  for (const auto& tail : tails) world.JoinHost(device, tail->clock);
  return kSuccess;
}

// Attributes that nobody asked for yet are unknown: an invalid value, not a guess.
int Attribute(int* value, cudaDeviceAttr attribute, const Options& options) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      *value = 1024;
      return kSuccess;
    case cudaDevAttrMaxBlockDimZ:
      *value = 64;
      return kSuccess;
    case cudaDevAttrMaxGridDimX:
      *value = 0x7fffffff;
      return kSuccess;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *value = 65535;
      return kSuccess;
    case cudaDevAttrWarpSize:
      *value = 32;
      return kSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = options.processors;
      return kSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      return kSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 << 10;
      return kSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = kMajor;
      return kSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = kMinor;
      return kSuccess;
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
      *value = options.pageable_access ? 1 : 0;
      return kSuccess;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      *value = 1;
      return kSuccess;
    case cudaDevAttrAsyncEngineCount:
      *value = 3;
      return kSuccess;
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
      *value = 0;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

struct ErrorText {
  int error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {600, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {800, "cudaErrorNotPermitted", "operation not permitted"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {904, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {905, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {906, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const ErrorText& Find(int error) {
  static constexpr ErrorText kOther = {-1, "an error that the fakes do not name",
                                       "an error that the fakes do not name"};
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return known;
  }
  return kOther;
}

}  // namespace
}  // namespace weft::fakes

using weft::fakes::Call;
using weft::fakes::Return;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  Call call("cudaGetDeviceCount");
  *count = static_cast<int>(call.world().devices.size());
  return Return(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  return Return(weft::fakes::Engine::Get().SetCurrentDevice(device));
}
cudaError_t cudaGetDevice(int* device) {
  *device = weft::fakes::Engine::Get().CurrentDevice();
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
  Call call("cudaInitDevice");
  return Return(weft::fakes::Exists(call, device) ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceSynchronize() { return Return(weft::fakes::SynchronizeDevice()); }
cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  Call call("cudaDeviceGetAttribute");
  if (!weft::fakes::Exists(call, device)) return Return(cudaErrorInvalidDevice);
  return Return(weft::fakes::Attribute(value, attribute, call.world().options));
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  const std::string id = "0000:" + std::to_string(10 + device) + ":00.0";
  if (length <= static_cast<int>(id.size())) return Return(cudaErrorInvalidValue);
  std::memcpy(text, id.c_str(), id.size() + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device) {
  Call call("cudaGetDeviceProperties");
  if (!weft::fakes::Exists(call, device)) return Return(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Weft fake GPU");
  properties->totalGlobalMem = std::size_t{80} << 30;
  properties->sharedMemPerBlock = 48 << 10;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->major = weft::fakes::kMajor;
  properties->minor = weft::fakes::kMinor;
  properties->multiProcessorCount = call.world().options.processors;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->unifiedAddressing = 1;
  properties->concurrentKernels = 1;
  properties->asyncEngineCount = 3;
  properties->pageableMemoryAccess = call.world().options.pageable_access ? 1 : 0;
  properties->memoryPoolsSupported = 1;
  properties->pciBusID = 10 + device;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

// A failed device stays failed.
cudaError_t cudaGetLastError() {
  const int error = std::exchange(weft::fakes::Thread::Current().last_error, 0);
  Call call("cudaGetLastError", Call::Kind::kQuiet);
  const int sticky = call.world().Sticky(call.thread().device);
  return static_cast<cudaError_t>(sticky != 0 ? sticky : error);
}
cudaError_t cudaPeekAtLastError() {
  const int error = weft::fakes::Thread::Current().last_error;
  Call call("cudaPeekAtLastError", Call::Kind::kQuiet);
  const int sticky = call.world().Sticky(call.thread().device);
  return static_cast<cudaError_t>(sticky != 0 ? sticky : error);
}
const char* cudaGetErrorName(cudaError_t error) { return weft::fakes::Find(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return weft::fakes::Find(error).text; }

}  // extern "C"
