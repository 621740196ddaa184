#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/shared_library.h"
#include "base/status_macros.h"
#include "device/cuda_entry.h"
#include "device/host/host_device.h"
#include "weft/device.h"
#include "weft/version.h"

namespace weft {

absl::StatusOr<std::unique_ptr<Device>> CreateHostDevice(const HostDeviceOptions& options) {
  if (options.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a host device needs at least 1 thread, not ", options.threads));
  }
  return std::make_unique<device::HostDevice>(options);
}

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options) {
  if (options.ordinal < 0 || options.reserved_processors < 0) {
    return absl::InvalidArgumentError(absl::StrCat("a CUDA device has no ordinal ", options.ordinal,
                                                   " with ", options.reserved_processors,
                                                   " processors kept free"));
  }
  WEFT_ASSIGN_OR_RETURN(void* const symbol,
                        base::FindSymbol(device::CudaLibrary(), device::kCudaDeviceEntry));
  const auto* entry = static_cast<const device::CudaDeviceEntry*>(symbol);
  WEFT_RETURN_IF_ERROR(device::CheckVersion(entry->version));
  return entry->create(options);
}

namespace device {

absl::Status CheckVersion(const char* version) {
  if (Version() == version) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the CUDA library is of Weft ", version,
                                                    ", but this is ", std::string(Version())));
}

}  // namespace device
}  // namespace weft
