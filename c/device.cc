// Devices and streams.
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "c/config.h"
#include "c/objects.h"
#include "weft/c/weft.h"

namespace weft::c {
namespace {

absl::StatusOr<std::unique_ptr<Device>> Create(const weftDeviceConfig_t& config) {
  if (config.kind == WEFT_DEVICE_HOST) return CreateHostDevice({.threads = config.threads});
  if (config.kind == WEFT_DEVICE_CUDA) {
    CudaDeviceOptions options;
    options.ordinal = config.ordinal;
    options.workspace_bytes = config.workspace_bytes;
    options.reserved_processors = config.reserved_processors;
    return CreateCudaDevice(options);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("weftDeviceConfig_t.kind is ", config.kind, ", not one of WEFT_DEVICE_*"));
}

}  // namespace
}  // namespace weft::c

using weft::c::Call;
using weft::c::CheckPointer;
using weft::c::Guard;
using weft::c::Kind;

weftResult_t weftDeviceCreate(const weftDeviceConfig_t* config, weftDevice_t* device) {
  return Guard(nullptr, [&]() -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(device, "device"));
    WEFT_ASSIGN_OR_RETURN(
        const weftDeviceConfig_t read,
        weft::c::ReadOptional(config, weftDeviceConfig_t WEFT_DEVICE_CONFIG_INITIALIZER,
                              "weftDeviceConfig_t"));
    WEFT_ASSIGN_OR_RETURN(auto made, weft::c::Create(read));
    *device = new weftDevice(std::move(made));
    return absl::OkStatus();
  });
}

weftResult_t weftDeviceDestroy(weftDevice_t device) {
  return weft::c::Destroy(device, Kind::kDevice);
}

weftResult_t weftDeviceNow(weftDevice_t device, int64_t* nanoseconds) {
  return Call(device, Kind::kDevice, [&](weftDevice& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(nanoseconds, "nanoseconds"));
    *nanoseconds = object.device->clock().Now();
    return absl::OkStatus();
  });
}

weftResult_t weftStreamCreate(weftDevice_t device, const char* name, weftStream_t* stream) {
  return Call(device, Kind::kDevice, [&](weftDevice& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(stream, "stream"));
    WEFT_ASSIGN_OR_RETURN(std::string text, weft::c::TextOf(name, "name"));
    *stream = new weftStream(object, object.device->CreateStream(std::move(text)));
    return absl::OkStatus();
  });
}

weftResult_t weftStreamAdopt(weftDevice_t device, void* native, const char* name,
                             weftStream_t* stream) {
  return Call(device, Kind::kDevice, [&](weftDevice& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(stream, "stream"));
    WEFT_ASSIGN_OR_RETURN(std::string text, weft::c::TextOf(name, "name"));
    WEFT_ASSIGN_OR_RETURN(auto adopted, object.device->AdoptStream(native, std::move(text)));
    *stream = new weftStream(object, std::move(adopted));
    return absl::OkStatus();
  });
}

weftResult_t weftStreamSynchronize(weftStream_t stream, double timeout_seconds) {
  return Call(stream, Kind::kStream, [&](weftStream& object) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const absl::Duration timeout,
                          weft::c::DurationOf(timeout_seconds, "timeout_seconds"));
    return object.stream->Synchronize(timeout);
  });
}

weftResult_t weftStreamDestroy(weftStream_t stream) {
  return weft::c::Destroy(stream, Kind::kStream);
}
