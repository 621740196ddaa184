// The one place above the leaves that knows them.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/gloo/transport.h"
#include "collectives/local/transport.h"
#include "weft/transport.h"

namespace weft {
namespace {

absl::Status CheckDeadline(absl::Duration deadline) {
  if (deadline > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("deadline is ", absl::FormatDuration(deadline), ", not > 0"));
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
  if (options.size > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("size is ", options.size, ", more than the ", kMostRanks, " ranks supported"));
  }
  return collectives::gloo::CreateTransport(options);
}

}  // namespace weft
