// Requests that cannot be served are refused with one sentence that names the matrix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/scheduler/requests.h"
#include "weft/plan.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

absl::Status Outcome(const PlanRequest& request) { return BuildPlan(request).status(); }

TEST(Request, BadMatricesAreNamed) {
  const std::vector<std::function<void(PlanMatrix&)>> breakages = {
      [](PlanMatrix& m) { m.rows = -1; },
      [](PlanMatrix& m) { m.cols = -1; },
      [](PlanMatrix& m) { m.rows = m.cols = std::numeric_limits<std::int64_t>::max(); },
      [](PlanMatrix& m) { m.cols = std::numeric_limits<std::int64_t>::max(); },
      [](PlanMatrix& m) { m.dtype = DType(9); },
      [](PlanMatrix& m) { m.layout = Layout(9); },
      [](PlanMatrix& m) { m.gradient = GradientKind(9); },
      [](PlanMatrix& m) { m.rule = RuleKind(9); },
      [](PlanMatrix& m) { m.flops = -1; },
      [](PlanMatrix& m) { m.flops = std::nan(""); },
      [](PlanMatrix& m) { m.flops = std::numeric_limits<double>::infinity(); },
      [](PlanMatrix& m) { m.state_bytes_per_element = -4; },
      [](PlanMatrix& m) {
        m.shard_rows = {4, 4};
      },
      [](PlanMatrix& m) { m.layout = Layout::kSharded, m.shard_rows = {8}; },
      [](PlanMatrix& m) {
        m.layout = Layout::kSharded, m.shard_rows = {4, 3};
      },
      [](PlanMatrix& m) {
        m.layout = Layout::kSharded, m.shard_rows = {9, -1};
      },
      [](PlanMatrix& m) {
        const std::int64_t most = std::numeric_limits<std::int64_t>::max();
        m.layout = Layout::kSharded, m.shard_rows = {most, most};
      },
      [](PlanMatrix& m) { m.name = "good"; }};
  for (const auto& breakage : breakages) {
    PlanRequest request =
        Request(Strategy::kOwner, 1, 2, {Matrix("good", 8, 8), Matrix("bad", 8, 8)});
    breakage(request.matrices[1]);
    const absl::Status status = Outcome(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + request.matrices[1].name + "'"));
  }
  EXPECT_THAT(std::string(Outcome(Request(Strategy::kOwner, 1, 2, {Matrix("", 8, 8)})).message()),
              HasSubstr("number 0"));
}

TEST(Request, BadTopologiesAreNamed) {
  for (const ProcessGrid& grid : {ProcessGrid{0, 1}, ProcessGrid{1, 0}, ProcessGrid{-1, -1},
                                  ProcessGrid{1 << 30, 1 << 30}, ProcessGrid{65536, 65537}}) {
    EXPECT_EQ(Outcome(Request(Strategy::kOwner, grid.nodes, grid.ranks_per_node, {})).code(),
              absl::StatusCode::kInvalidArgument);
  }
  PlanRequest request = Request(Strategy::kOwner, 1, 2, {Matrix("a", 8, 8)});
  request.topology.inter.latency_us = -1;
  EXPECT_THAT(std::string(Outcome(request).message()), HasSubstr("inter"));
  request.topology.inter.latency_us = 0;
  request.topology.nics_per_node = -1;
  EXPECT_THAT(std::string(Outcome(request).message()), HasSubstr("nics_per_node"));
}

TEST(Request, AStrategyMustBeOne) {
  EXPECT_EQ(Outcome(Request(Strategy(7), 1, 2, {Matrix("a", 8, 8)})).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Request, ReplicatedStrategyRefusesShards) {
  const absl::Status status = Outcome(Request(
      Strategy::kReplicated, 1, 2, {Matrix("a", 8, 8), Matrix("b", 8, 8, Layout::kSharded)}));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'b'"));
}

TEST(Request, GatherFallsBackForReplicatedMatricesUnlessStrict) {
  PlanRequest request =
      Request(Strategy::kGather, 1, 2, {Matrix("a", 8, 8), Matrix("b", 8, 8, Layout::kSharded)});
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_EQ(plan->matrices[0].path, "replicated: all-reduce, NS on every rank");
  EXPECT_NE(plan->matrices[0].fallback, "");
  EXPECT_EQ(plan->matrices[1].fallback, "");
  request.strict = true;
  const absl::Status status = Outcome(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("'a'"), HasSubstr("strict")));
}

TEST(Request, NoMatricesGiveAPlanWithNothingButTheVerdict) {
  const absl::StatusOr<Plan> plan = BuildPlan(Request(Strategy::kOwner, 2, 2, {}));
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_EQ(plan->ops.size(), 1u);
}

TEST(Request, WhatTheBuilderFillsInIsNotTakenFromTheRequest) {
  PlanRequest request = Request(Strategy::kReplicated, 1, 2, {Matrix("a", 8, 8)});
  const std::uint64_t clean = Fingerprint(*BuildPlan(request));
  request.matrices[0].owner = 77;
  request.matrices[0].path = "x";
  request.matrices[0].fallback = "y";
  EXPECT_EQ(Fingerprint(*BuildPlan(request)), clean);
}

RC_GTEST_PROP(Request, DefaultShardsAreFullBlocksThenAShortOneThenEmptyOnes, ()) {
  const auto rows = *Evenly<std::int64_t>(0, 5000);
  const int ranks = *Evenly(1, 70);
  const std::vector<std::int64_t> shards = DefaultShardRows(rows, ranks);
  RC_ASSERT(shards.size() == static_cast<std::size_t>(ranks));
  RC_ASSERT(std::accumulate(shards.begin(), shards.end(), std::int64_t{0}) == rows);
  const std::int64_t block = (rows + ranks - 1) / ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    RC_ASSERT(shards[rank] == std::max<std::int64_t>(0, std::min(block, rows - rank * block)));
  }
}

}  // namespace
}  // namespace weft::testing
