#include "weft/topology_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/topologies.h"
#include "weft/plan.h"

namespace weft {
namespace {

using namespace std::string_literals;  // texts with a zero byte
using ::testing::HasSubstr;

TEST(TopologyFile, ReadsEveryField) {
  const absl::StatusOr<Topology> topology = ParseTopology(
      R"({"nodes": 2, "ranks_per_node": 4, "nics_per_node": 1,
          "intra": {"class": "pcie-switch", "latency_us": 10, "gigabytes_per_second": 12.5},
          "inter": {"latency_us": 20.25, "gigabytes_per_second": 3},
          "root_complexes": {"per_node": 2, "gigabytes_per_second": 24.5}})");
  ASSERT_EQ(topology.status(), absl::OkStatus());
  EXPECT_EQ(*topology,
            (Topology{{2, 4}, {10, 12.5}, {20.25, 3}, 1, LinkClass::kPcieSwitch, 2, 24.5}));
}

TEST(TopologyFile, APlansTopologyIsOne) {
  Plan plan;
  plan.topology = {{2, 4}, {10, 12.5}, {20.25, 3}, 1, LinkClass::kNvlink, 2, 24.5};
  auto topologies = testing::OneFieldChanged(plan.topology);
  topologies.emplace_back("nothing", plan.topology);
  for (const auto& [field, topology] : topologies) {
    plan.topology = topology;
    const auto json = nlohmann::json::parse(PlanToJson(plan));
    const absl::StatusOr<Topology> parsed = ParseTopology(json["topology"].dump());
    ASSERT_EQ(parsed.status(), absl::OkStatus()) << field;
    EXPECT_EQ(*parsed, topology) << field;
    EXPECT_EQ(*ParseTopology(TopologyToJson(topology)), topology) << field;
  }
}

TEST(TopologyFile, MostFieldsMayBeLeftOut) {
  EXPECT_EQ(*ParseTopology(R"({"nodes": 1, "ranks_per_node": 8})"), (Topology{{1, 8}, {}, {}, 0}));
  EXPECT_EQ(*ParseTopology(R"({"nodes": 1, "ranks_per_node": 8, "intra": {"latency_us": 3}})"),
            (Topology{{1, 8}, {3, 0}, {}, 0}));
}

TEST(TopologyFile, ErrorsNameTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"ranks_per_node": 1})", "'nodes'"},
      {R"({"nodes": 1})", "'ranks_per_node'"},
      {R"({"nodes": 0, "ranks_per_node": 1})", "'nodes'"},
      {R"({"nodes": -3, "ranks_per_node": 1})", "'nodes'"},
      {R"({"nodes": 1.5, "ranks_per_node": 1})", "'nodes'"},
      {R"({"nodes": "2", "ranks_per_node": 1})", "'nodes'"},
      {R"({"nodes": null, "ranks_per_node": 1})", "'nodes'"},
      {R"({"nodes": true, "ranks_per_node": 1})", "'nodes'"},
      {R"({"nodes": 18446744073709551615, "ranks_per_node": 1})", "'nodes'"},
      {R"({"nodes": -9223372036854775808, "ranks_per_node": 1})", "'nodes'"},
      {R"({"nodes": 99999999999999999999999, "ranks_per_node": 1})", "'nodes'"},
      {R"({"nodes": 1, "ranks_per_node": 4294967297})", "'ranks_per_node'"},
      {R"({"nodes": 65537, "ranks_per_node": 1})", "'nodes' must lie in 1 to 65536"},
      {R"({"nodes": 65536, "ranks_per_node": 65536})", "65536 nodes of 65536 ranks"},
      {R"({"nodes": 1, "ranks_per_node": 1, "nodes": 2})", "'nodes' appears twice"},
      {R"({"nodes": 1, "ranks_per_node": 1, "intra": {"latency_us": 1, "latency_us": 1}})",
       "'latency_us' appears twice"},
      {R"({"nodes": 1, "ranks_per_node": 1, "intra": {"latency_us": 1e300}})", "intra.latency_us"},
      {R"({"nodes": 1, "ranks_per_node": 1, "inter": {"gigabytes_per_second": 1e-300}})",
       "inter.gigabytes_per_second"},
      {"{\"nodes\": 1, \"ranks_per_node\": 1}\0garbage"s, "not JSON"},
      {R"({"nodes": 1, "ranks_per_node": 1, "nics_per_node": -1})", "'nics_per_node'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "intra": 3})", "'intra'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "intra": {"latency_us": -1}})", "'intra.latency_us'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "inter": {"latency_us": "fast"}})",
       "'inter.latency_us'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "inter": {"gigabytes_per_second": []}})",
       "'inter.gigabytes_per_second'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "inter": {"bandwidth": 3}})", "'inter.bandwidth'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "node": 1})", "'node'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "intra": {"class": "pci"}})", "'intra.class' must be"},
      {R"({"nodes": 1, "ranks_per_node": 1, "intra": {"class": 1}})", "'intra.class' must be"},
      {R"({"nodes": 1, "ranks_per_node": 1, "inter": {"class": "shm"}})", "'inter.class'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "root_complexes": 2})", "'root_complexes'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "root_complexes": {"per_node": 0}})",
       "'root_complexes.per_node'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "root_complexes": {"per_node": 65537}})",
       "'root_complexes.per_node'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "root_complexes": {"gigabytes_per_second": -1}})",
       "'root_complexes.gigabytes_per_second'"},
      {R"({"nodes": 1, "ranks_per_node": 1, "root_complexes": {"gigabytes_per_second": 1e-9}})",
       "root_complex_gigabytes_per_second"},
      {R"({"nodes": 1, "ranks_per_node": 1, "root_complexes": {"latency_us": 1}})",
       "'root_complexes.latency_us'"},
      {R"([1, 2])", "object"},
      {R"({"nodes": 1, "ranks_per_node": 1} trailing)", "not JSON"},
      {R"({"nodes": 1, "ranks_per_node": 1, "intra": {"latency_us": 1e999}})", "topology"},
      {R"({"nodes": 1, "ranks_per_node": 1, "intra": {"latency_us": NaN}})", "not JSON"},
      {R"({"nodes": 1,)", "not JSON"},
      {"", "not JSON"},
      {std::string(200000, '['), "not JSON"},
      {std::string(100000, '[') + std::string(100000, ']'), "object"},
      {"{\"nodes\": 1, \0}"s, "not JSON"},
  };
  for (const auto& [text, named] : cases) {
    const absl::Status status = ParseTopology(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 100);
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
  }
}

RC_GTEST_PROP(TopologyFile, AnyBytesGiveAnAnswer, (std::string text)) {
  const absl::StatusOr<Topology> topology = ParseTopology(text);
  RC_ASSERT(topology.ok() || topology.status().code() == absl::StatusCode::kInvalidArgument);
}

TEST(TopologyFile, FileErrorsNameTheFile) {
  EXPECT_EQ(ReadTopology("/nonexistent/t.json").status().code(), absl::StatusCode::kNotFound);
  for (const std::string& path : {::testing::TempDir(), std::string("/dev/zero")}) {
    EXPECT_EQ(ReadTopology(path).status().code(), absl::StatusCode::kInvalidArgument);
  }
  const std::string path = ::testing::TempDir() + "weft_topology_file_test.json";
  std::ofstream(path) << R"({"nodes": 0, "ranks_per_node": 1})";
  EXPECT_THAT(std::string(ReadTopology(path).status().message()),
              ::testing::AllOf(HasSubstr(path), HasSubstr("'nodes'")));
  std::ofstream(path) << R"({"nodes": 3, "ranks_per_node": 1})";
  EXPECT_EQ(*ReadTopology(path), (Topology{{3, 1}, {}, {}, 0}));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace weft
