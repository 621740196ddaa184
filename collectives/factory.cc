// The one place above the leaves that knows them.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/gloo/transport.h"
#include "collectives/local/transport.h"
#include "weft/transport.h"

namespace weft {
namespace {

absl::Status CheckLink(const std::string& name, const Link& link) {
  if (!(link.latency_us >= 0) || !std::isfinite(link.latency_us)) {
    return absl::InvalidArgumentError(
        absl::StrCat("topology: ", name, ".latency_us is ", link.latency_us, ", not >= 0"));
  }
  if (!(link.gigabytes_per_second >= 0) || !std::isfinite(link.gigabytes_per_second)) {
    return absl::InvalidArgumentError(absl::StrCat("topology: ", name, ".gigabytes_per_second is ",
                                                   link.gigabytes_per_second, ", not >= 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckTopology(const Topology& topology) {
  if (topology.grid.nodes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("topology: nodes is ", topology.grid.nodes, ", not >= 1"));
  }
  if (topology.grid.ranks_per_node < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("topology: ranks_per_node is ", topology.grid.ranks_per_node, ", not >= 1"));
  }
  if (topology.nics_per_node < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("topology: nics_per_node is ", topology.nics_per_node, ", not >= 0"));
  }
  WEFT_RETURN_IF_ERROR(CheckLink("intra", topology.intra));
  return CheckLink("inter", topology.inter);
}

absl::Status CheckDeadline(absl::Duration deadline) {
  if (deadline > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("deadline is ", absl::FormatDuration(deadline), ", not > 0"));
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Transport>>> CreateLocalTransports(
    const LocalTransportOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckTopology(options.topology));
  WEFT_RETURN_IF_ERROR(CheckDeadline(options.deadline));
  return collectives::local::CreateTransports(options);
}

absl::StatusOr<std::unique_ptr<Transport>> CreateGlooTransport(
    const GlooTransportOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckDeadline(options.deadline));
  return collectives::gloo::CreateTransport(options);
}

}  // namespace weft
