// How libweft finds the CUDA device in the library that has it: a constant that the library
// exports.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/shared_library.h"
#include "weft/device.h"

namespace weft::device {

// The same for all that libweft-cuda.so has. Its types are C++'s, so it and libweft come from one
// build; `version` says which.
inline base::LibraryRule CudaLibrary() {
  return {"the CUDA library", "WEFT_CUDA_PLUGIN", "libweft-cuda"};
}

struct CudaDeviceEntry {
  const char* version;
  absl::StatusOr<std::unique_ptr<Device>> (*create)(const CudaDeviceOptions&);
};
inline constexpr char kCudaDeviceEntry[] = "weftCudaDevice_v1";

// FailedPrecondition where an entry found there is of another build.
absl::Status CheckVersion(const char* version);

}  // namespace weft::device
