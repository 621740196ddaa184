// The one place above the leaves that knows them.
#include "absl/strings/str_cat.h"
#include "base/shared_library.h"
#include "base/status_macros.h"
#include "collectives/gloo/transport.h"
#include "collectives/local/transport.h"
#include "collectives/nccl_entry.h"
#include "collectives/plugin/transport.h"
#include "device/cuda_entry.h"
#include "weft/plugin_transport.h"
#include "weft/transport.h"

namespace weft {
namespace {

absl::Status CheckDeadline(absl::Duration deadline) {
  if (deadline > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("deadline is ", absl::FormatDuration(deadline), ", not > 0"));
}

absl::Status CheckSize(int size) {
  if (size <= kMostRanks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("size is ", size, ", more than the ", kMostRanks, " ranks supported"));
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Transport>>> CreateLocalTransports(
    const LocalTransportOptions& options) {
  WEFT_RETURN_IF_ERROR(Validate(options.topology));
  WEFT_RETURN_IF_ERROR(CheckDeadline(options.deadline));
  return collectives::local::CreateTransports(options);
}

absl::StatusOr<std::unique_ptr<Transport>> CreateGlooTransport(
    const GlooTransportOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckDeadline(options.deadline));
  WEFT_RETURN_IF_ERROR(CheckSize(options.size));
  return collectives::gloo::CreateTransport(options);
}

absl::StatusOr<std::unique_ptr<Transport>> CreatePluginTransport(
    const PluginTransportOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckDeadline(options.deadline));
  WEFT_RETURN_IF_ERROR(CheckSize(options.size));
  if (options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " is not in a world of ", options.size));
  }
  return collectives::plugin::CreateTransport(options);
}

absl::StatusOr<std::unique_ptr<Transport>> CreateNcclTransport(const NcclTransportOptions& options,
                                                               Device& device) {
  WEFT_RETURN_IF_ERROR(CheckDeadline(options.deadline));
  WEFT_RETURN_IF_ERROR(CheckSize(options.size));
  if (device.kind() != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("NCCL needs a device of kind cuda, not ", std::string(device.kind())));
  }
  WEFT_ASSIGN_OR_RETURN(void* const symbol,
                        base::FindSymbol(device::CudaLibrary(), collectives::kNcclTransportEntry));
  const auto* entry = static_cast<const collectives::NcclTransportEntry*>(symbol);
  WEFT_RETURN_IF_ERROR(device::CheckVersion(entry->version));
  return entry->create(options, device);
}

}  // namespace weft
