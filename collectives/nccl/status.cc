#include "collectives/nccl/status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace weft::collectives::nccl {

absl::Status NcclStatus(ncclResult_t result, std::string_view call) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  std::string text =
      absl::StrCat("NCCL: ", std::string(call), " failed: ", ncclGetErrorString(result));
  const char* last = ncclGetLastError(nullptr);
  if (last != nullptr && *last != '\0') absl::StrAppend(&text, " (", last, ")");
  const bool peer = result == ncclRemoteError || result == ncclSystemError;
  return absl::Status(peer ? absl::StatusCode::kUnavailable : absl::StatusCode::kInternal, text);
}

}  // namespace weft::collectives::nccl
