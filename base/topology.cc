#include "weft/topology.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

// With these, the nanoseconds of the largest payload that a plan may hold over all hops of the
// largest world stay far inside 64 bits, with room for a queue of such operations.
constexpr double kMostLatency = 1e8;
constexpr double kLeastBandwidth = 1e-4;
constexpr double kMostBandwidth = 1e9;

absl::Status CheckBandwidth(const std::string& name, double bandwidth) {
  // Written so that NaN is refused.
  if (bandwidth == 0 || (bandwidth >= kLeastBandwidth && bandwidth <= kMostBandwidth)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("topology: ", name, " is ", bandwidth,
                                                 ", neither 0 nor in [", kLeastBandwidth, ", ",
                                                 kMostBandwidth, "]"));
}

absl::Status CheckLink(const char* name, const Link& link) {
  if (!(link.latency_us >= 0 && link.latency_us <= kMostLatency)) {
    return absl::InvalidArgumentError(absl::StrCat("topology: ", name, ".latency_us is ",
                                                   link.latency_us, ", not in [0, ", kMostLatency,
                                                   "]"));
  }
  return CheckBandwidth(absl::StrCat(name, ".gigabytes_per_second"), link.gigabytes_per_second);
}

absl::Status AtLeast(const char* name, int value, int least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("topology: ", name, " is ", value, ", not >= ", least));
}

absl::Status CheckPerNode(const char* name, int value, int least) {
  WEFT_RETURN_IF_ERROR(AtLeast(name, value, least));
  if (value <= kMostRanks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("topology: ", name, " is ", value, ", more than ", kMostRanks));
}

}  // namespace

std::string_view Name(LinkClass link_class) {
  switch (link_class) {
    case LinkClass::kPcie:
      return "pcie";
    case LinkClass::kPcieSwitch:
      return "pcie-switch";
    case LinkClass::kNvlink:
      return "nvlink";
    case LinkClass::kShm:
      return "shm";
  }
  return "unknown";
}

absl::Status Validate(const Topology& topology) {
  const ProcessGrid& grid = topology.grid;
  WEFT_RETURN_IF_ERROR(AtLeast("nodes", grid.nodes, 1));
  WEFT_RETURN_IF_ERROR(AtLeast("ranks_per_node", grid.ranks_per_node, 1));
  // grid.size() is an int, so this comes before anything that calls it.
  if (std::int64_t{grid.nodes} * grid.ranks_per_node > kMostRanks) {
    return absl::InvalidArgumentError(absl::StrCat("topology: ", grid.nodes, " nodes of ",
                                                   grid.ranks_per_node, " ranks are more than the ",
                                                   kMostRanks, " ranks supported"));
  }
  WEFT_RETURN_IF_ERROR(CheckPerNode("nics_per_node", topology.nics_per_node, 0));
  WEFT_RETURN_IF_ERROR(CheckLink("intra", topology.intra));
  WEFT_RETURN_IF_ERROR(CheckLink("inter", topology.inter));
  if (topology.intra_class > LinkClass::kShm) {
    return absl::InvalidArgumentError(absl::StrCat("topology: intra_class is ",
                                                   static_cast<int>(topology.intra_class),
                                                   ", which names no link class"));
  }
  WEFT_RETURN_IF_ERROR(
      CheckPerNode("root_complexes_per_node", topology.root_complexes_per_node, 1));
  return CheckBandwidth("root_complex_gigabytes_per_second",
                        topology.root_complex_gigabytes_per_second);
}

}  // namespace weft
