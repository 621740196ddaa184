#include "weft/topology_preset.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/string_view.h"

namespace weft {
namespace {

// Microseconds per hop of a ring with large messages, as NCCL's tuning tables have them.
constexpr double kNvlinkLatency = 3.4;
constexpr double kPcieLatency = 5.7;
constexpr double kNetworkLatency = 9.6;

constexpr double kPcie4x16 = 24;
constexpr double kNic100 = 12;
constexpr double kNic200 = 24;
constexpr double kNic400 = 48;

Topology PcieNode(int nics) {
  return {.grid = {1, 8},
          .intra = {kPcieLatency, kPcie4x16},
          .inter = {kNetworkLatency, kNic100},
          .nics_per_node = nics,
          .intra_class = LinkClass::kPcie,
          .root_complexes_per_node = 2,
          .root_complex_gigabytes_per_second = 40};
}

}  // namespace

const std::vector<TopologyPreset>& TopologyPresets() {
  static const std::vector<TopologyPreset> presets = {
      {"a800-nvlink",
       "8 x A800, NVLink of 400 GB/s both ways, one 200 Gb/s InfiniBand NIC",
       {.grid = {1, 8},
        .intra = {kNvlinkLatency, 160},
        .inter = {kNetworkLatency, kNic200},
        .nics_per_node = 1,
        .intra_class = LinkClass::kNvlink}},
      {"h100-nvlink",
       "8 x H100, NVLink of 900 GB/s both ways, a 400 Gb/s NIC for each",
       {.grid = {1, 8},
        .intra = {kNvlinkLatency, 360},
        .inter = {kNetworkLatency, kNic400},
        .nics_per_node = 8,
        .intra_class = LinkClass::kNvlink}},
      {"pcie-48gb-1nic", "8 x 48 GB, PCIe 4.0 only, two sockets, one 100 Gb/s NIC", PcieNode(1)},
      {"pcie-48gb-2nic", "8 x 48 GB, PCIe 4.0 only, two sockets, two 100 Gb/s NICs", PcieNode(2)},
      {"l20-pcie",
       "8 x L20, a PCIe 4.0 switch for each four, one 200 Gb/s NIC at a socket",
       {.grid = {1, 8},
        .intra = {kPcieLatency, kPcie4x16},
        .inter = {kNetworkLatency, kNic200},
        .nics_per_node = 1,
        .intra_class = LinkClass::kPcieSwitch,
        .root_complexes_per_node = 2,
        .root_complex_gigabytes_per_second = 16}},
      {"consumer-2",
       "2 consumer cards at PCIe 4.0 x8 without peer access, 10 Gb/s Ethernet",
       {.grid = {1, 2},
        .intra = {kPcieLatency, kPcie4x16 / 2},
        .inter = {30, 1.1},
        .nics_per_node = 1,
        .intra_class = LinkClass::kShm,
        .root_complexes_per_node = 1,
        .root_complex_gigabytes_per_second = 13}},
  };
  return presets;
}

absl::StatusOr<Topology> Preset(std::string_view name, int nodes) {
  for (const TopologyPreset& preset : TopologyPresets()) {
    if (preset.name != name) continue;
    Topology topology = preset.node;
    topology.grid.nodes = nodes;
    WEFT_RETURN_IF_ERROR(Validate(topology));
    return topology;
  }
  const std::string names =
      absl::StrJoin(TopologyPresets(), ", ", [](std::string* out, const TopologyPreset& preset) {
        absl::StrAppend(out, base::View(preset.name));
      });
  return absl::InvalidArgumentError(
      absl::StrCat("topology: no preset is called '", base::View(name), "'; there are ", names));
}

}  // namespace weft
