// What the library of the CUDA leaves makes of device/cuda.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "weft/device.h"

namespace weft::device {

// Errors as those of CreateCudaDevice(), but for NotFound.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options);

}  // namespace weft::device
