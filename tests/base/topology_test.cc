#include "weft/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string Complaint(const Topology& topology) {
  const absl::Status status = Validate(topology);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(Topology, ExtentsHaveOneLimit) {
  for (const ProcessGrid& grid :
       {ProcessGrid{1, 1}, {kMostRanks, 1}, {1, kMostRanks}, {256, 256}}) {
    EXPECT_TRUE(Validate({grid}).ok());
  }
  EXPECT_THAT(Complaint({{0, 1}}), HasSubstr("nodes is 0"));
  EXPECT_THAT(Complaint({{-1, -2}}), HasSubstr("nodes is -1"));
  EXPECT_THAT(Complaint({{1, -2}}), HasSubstr("ranks_per_node is -2"));
  // The product of the last ones in 32 bits is 65536, 0, and 1.
  for (const ProcessGrid& grid :
       {ProcessGrid{kMostRanks, 2}, {65536, 65537}, {65536, 65536}, {2147483647, 2147483647}}) {
    EXPECT_THAT(Complaint({grid}), HasSubstr("more than the 65536 ranks"));
  }
  EXPECT_THAT(Complaint({.nics_per_node = -1}), HasSubstr("nics_per_node is -1"));
}

TEST(Topology, LinksFitTheModel) {
  for (const double latency : {0.0, 0.5, 1e8}) {
    EXPECT_TRUE(Validate({.intra = {.latency_us = latency}}).ok());
  }
  for (const double latency : std::initializer_list<double>{-1, 1.1e8, 1e300, NAN, INFINITY}) {
    EXPECT_THAT(Complaint({.intra = {.latency_us = latency}}), HasSubstr("intra.latency_us is"));
  }
  for (const double bandwidth : {0.0, 1e-4, 1e9}) {
    EXPECT_TRUE(Validate({.inter = {.gigabytes_per_second = bandwidth}}).ok());
  }
  for (const double bandwidth : std::initializer_list<double>{
           -1, 1e-5, std::numeric_limits<double>::denorm_min(), 1e300, NAN, INFINITY}) {
    EXPECT_THAT(Complaint({.inter = {.gigabytes_per_second = bandwidth}}),
                HasSubstr("inter.gigabytes_per_second is"));
  }
}

}  // namespace
}  // namespace weft
