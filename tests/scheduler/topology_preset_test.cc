#include "weft/topology_preset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "weft/launch.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TopologyPreset, EachIsACompleteNodeUnderItsOwnName) {
  std::set<std::string_view> names;
  for (const TopologyPreset& preset : TopologyPresets()) {
    names.insert(preset.name);
    EXPECT_FALSE(preset.description.empty()) << preset.name;
    EXPECT_EQ(preset.description.find('\n'), std::string_view::npos) << preset.name;
    for (const int nodes : {1, 32}) {
      const absl::StatusOr<Topology> topology = Preset(preset.name, nodes);
      ASSERT_EQ(topology.status(), absl::OkStatus()) << preset.name;
      Topology expected = preset.node;
      expected.grid.nodes = nodes;
      EXPECT_EQ(*topology, expected);
      EXPECT_GT(topology->nics_per_node, 0) << preset.name;
      // The nearer, the faster.
      EXPECT_GT(topology->intra.gigabytes_per_second, topology->inter.gigabytes_per_second * 0.9);
      EXPECT_LT(topology->intra.latency_us, topology->inter.latency_us);
    }
  }
  EXPECT_EQ(names.size(), TopologyPresets().size());
}

TEST(TopologyPreset, NodesHaveWhatTheirDescriptionsSay) {
  const auto one = [](std::string_view name) { return *Preset(name, 1); };
  EXPECT_EQ(one("a800-nvlink").grid.ranks_per_node, 8);
  EXPECT_EQ(one("a800-nvlink").intra_class, LinkClass::kNvlink);
  EXPECT_EQ(SharedResources(one("a800-nvlink")).size(), 1u) << "its NIC";
  EXPECT_EQ(SharedResources(one("h100-nvlink")).size(), 8u);
  EXPECT_EQ(SharedResources(one("pcie-48gb-1nic")).size(), 2u + 1u);
  EXPECT_EQ(SharedResources(one("pcie-48gb-2nic")).size(), 2u + 2u);
  EXPECT_EQ(one("pcie-48gb-1nic").intra_class, LinkClass::kPcie);
  EXPECT_EQ(one("l20-pcie").intra_class, LinkClass::kPcieSwitch);
  EXPECT_EQ(one("consumer-2").grid.size(), 2);
  EXPECT_EQ(one("consumer-2").intra_class, LinkClass::kShm);
}

TEST(TopologyPreset, RefusesUnknownNamesAndWorlds) {
  const auto message = [](std::string_view name, int nodes) {
    const absl::Status status = Preset(name, nodes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message("h100", 1), AllOf(HasSubstr("'h100'"), HasSubstr("a800-nvlink, h100-nvlink"),
                                        HasSubstr("consumer-2")));
  EXPECT_THAT(message("", 1), HasSubstr("''"));
  EXPECT_THAT(message("h100-nvlink", 0), HasSubstr("nodes is 0"));
  EXPECT_THAT(message("h100-nvlink", 8193), HasSubstr("8193 nodes of 8 ranks"));
}

// The example of docs/topology.md.
TEST(TopologyPreset, TakesItsNodesFromTheLauncher) {
  const auto torchrun = [](const std::string& name) -> std::optional<std::string> {
    if (name == "RANK") return "17";
    if (name == "WORLD_SIZE") return "32";
    if (name == "LOCAL_RANK") return "1";
    if (name == "LOCAL_WORLD_SIZE") return "8";
    return std::nullopt;
  };
  const absl::StatusOr<Launch> launch = ParseLaunch(torchrun);
  ASSERT_EQ(launch.status(), absl::OkStatus());
  const absl::StatusOr<Topology> topology = Preset("l20-pcie", launch->grid.nodes);
  ASSERT_EQ(topology.status(), absl::OkStatus());
  EXPECT_EQ(topology->grid, launch->grid);
}

}  // namespace
}  // namespace weft
