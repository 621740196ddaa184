#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "device/host/host_device.h"
#include "weft/device.h"

namespace weft {

absl::StatusOr<std::unique_ptr<Device>> CreateHostDevice(const HostDeviceOptions& options) {
  if (options.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a host device needs at least 1 thread, not ", options.threads));
  }
  return std::make_unique<device::HostDevice>(options);
}

}  // namespace weft
