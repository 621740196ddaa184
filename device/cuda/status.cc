#include "device/cuda/status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace weft::device {

absl::Status CudaStatus(cudaError_t error, std::string_view call, std::string_view who) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  const std::string text = absl::StrCat(std::string(call), " on ", std::string(who),
                                        " failed: ", cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

}  // namespace weft::device
