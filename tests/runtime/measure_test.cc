// What is measured and that all ranks agree on it; never how long it took.
#include "weft/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/link_cost.h"
#include "runtime/timing.h"
#include "tests/support/forwarding.h"
#include "tests/support/world.h"
#include "weft/work.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::RunWorld;

MeasureOptions SmallOptions(const ProcessGrid& grid) {
  MeasureOptions options;
  options.topology.grid = grid;
  options.shapes = {{12, 30}, {30, 12}, {8, 8}};
  options.batches = {2, 1};
  options.sizes = {400, 40};
  options.repetitions = 3;
  return options;
}

void ExpectCompute(const CostProfile& profile, const MeasureOptions& options) {
  std::vector<std::tuple<ComputeKind, std::int64_t, std::int64_t, int>> found;
  for (const ComputeSample& sample : profile.compute) {
    const ComputeShape& shape = sample.shape;
    found.emplace_back(shape.kind, shape.rows, shape.cols, sample.batch);
    EXPECT_GT(sample.seconds, 0);
    EXPECT_GE(sample.spread, 0);
    const bool newton_schulz = shape.kind == ComputeKind::kNewtonSchulz;
    const ComputeWork work = newton_schulz
                                 ? *NewtonSchulzWork(options.newton_schulz, shape.rows, shape.cols)
                                 : RowNormWork(shape.rows, shape.cols);
    EXPECT_EQ(shape, work.shape);
    EXPECT_EQ(sample.flops, work.flops);
  }
  const auto ns = ComputeKind::kNewtonSchulz, norm = ComputeKind::kRowNorm;
  EXPECT_EQ(found, (decltype(found){{ns, 8, 8, 1},
                                    {ns, 8, 8, 2},
                                    {ns, 12, 30, 1},
                                    {ns, 12, 30, 2},
                                    {norm, 8, 8, 1},
                                    {norm, 8, 8, 2},
                                    {norm, 12, 30, 1},
                                    {norm, 12, 30, 2}}));
}

TEST(Measure, OneRankHasNoCollectives) {
  RunWorld({.grid = {1, 1}}, [](testing::Rank rank) {
    MeasureOptions options = SmallOptions({1, 1});
    options.sizes.clear();
    std::vector<std::string> told;
    options.on_sample = [&](const std::string& what) { told.push_back(what); };
    const auto profile = MeasureCosts(rank.device, rank.transport, options);
    ASSERT_EQ(profile.status(), absl::OkStatus());
    ExpectCompute(*profile, options);
    EXPECT_TRUE(profile->collectives.empty());
    EXPECT_EQ(told.size(), 8u);
    EXPECT_EQ(told.front(), "newton_schulz of 1 x 8 x 8");
    const ProfileFingerprint here =
        FingerprintOf(rank.device, rank.transport.kind(), options.topology);
    EXPECT_EQ(CheckProfile(*profile, here), absl::OkStatus());
    EXPECT_EQ(*ParseCostProfile(CostProfileToJson(*profile)), *profile);
  });
}

TEST(Measure, AllRanksGetTheSameProfile) {
  for (const ProcessGrid& grid : {ProcessGrid{1, 4}, {2, 2}, {4, 1}}) {
    const MeasureOptions options = SmallOptions(grid);
    std::vector<CostProfile> profiles(4);
    RunWorld({.grid = grid}, [&](testing::Rank rank) {
      const auto profile = MeasureCosts(rank.device, rank.transport, options);
      ASSERT_EQ(profile.status(), absl::OkStatus());
      profiles[rank.rank] = *profile;
    });
    const CostProfile& profile = profiles[0];
    for (const CostProfile& other : profiles) EXPECT_EQ(other, profile);
    ExpectCompute(profile, options);
    std::set<std::pair<OpKind, GroupClass>> found;
    const bool two_levels = grid.nodes == 2;
    for (const CollectiveCost& cost : profile.collectives) {
      EXPECT_TRUE(found.emplace(cost.kind, cost.group).second);
      EXPECT_EQ(cost.ranks, cost.group == GroupClass::kWorld ? 4 : 2);
      EXPECT_TRUE(two_levels || cost.group == GroupClass::kWorld);
      ASSERT_EQ(cost.samples.size(), 2u);
      EXPECT_EQ(cost.samples[0].bytes, 40);
      EXPECT_EQ(cost.samples[1].bytes, 400);
      for (const LinkSample& sample : cost.samples) EXPECT_GT(sample.seconds, 0);
      EXPECT_EQ(cost.fit, *FitLink(cost.samples));
    }
    EXPECT_EQ(found.size(), two_levels ? 21u : 7u);
    EXPECT_EQ(*ParseCostProfile(CostProfileToJson(profile)), profile);
  }
}

// An emulated operation ends no earlier than its links say, so no time can be shorter.
TEST(Measure, SeesTheWholeOfAnEmulatedCollective) {
  LocalTransportOptions local;
  local.topology = {{2, 2}, {300, 0.01}, {500, 0.005}, 1};
  auto transports = *CreateLocalTransports(local);
  MeasureOptions options;
  options.topology = local.topology;
  options.sizes = {400, 4000};
  options.repetitions = 2;
  std::vector<std::thread> threads;
  CostProfile profile;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const auto device = *CreateHostDevice();
      const auto measured = MeasureCosts(*device, *transports[rank], options);
      ASSERT_EQ(measured.status(), absl::OkStatus());
      if (rank == 0) profile = *measured;
    });
  }
  for (std::thread& thread : threads) thread.join();
  int seen = 0;
  for (const CollectiveCost& cost : profile.collectives) {
    if (cost.kind != OpKind::kBroadcast && cost.kind != OpKind::kAllReduce) continue;
    const Link& link =
        cost.group == GroupClass::kIntra ? local.topology.intra : local.topology.inter;
    for (const LinkSample& sample : cost.samples) {
      const auto pattern =
          cost.kind == OpKind::kBroadcast ? base::Pattern::kRooted : base::Pattern::kAllReduce;
      EXPECT_GE(sample.seconds, base::CollectiveSeconds(pattern, cost.ranks,
                                                        static_cast<double>(sample.bytes), link) -
                                    1e-9);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 2 * 3 * 2);
}

TEST(Measure, LeavesOutBatchesThatAreTooLarge) {
  RunWorld({.grid = {1, 1}}, [](testing::Rank rank) {
    const auto batches = [&](const MeasureOptions& options) {
      const CostProfile profile = *MeasureCosts(rank.device, rank.transport, options);
      std::vector<int> found;
      for (const ComputeSample& sample : profile.compute) found.push_back(sample.batch);
      return found;
    };
    MeasureOptions options = SmallOptions({1, 1});
    options.shapes = {{8, 8}};
    options.memory_bytes = 1;
    EXPECT_EQ(batches(options), (std::vector<int>{1, 1}));
    // Of a row norm 2 x 4 bytes per element; Newton-Schulz has a workspace beside that.
    options.memory_bytes = 2 * 2 * 4 * 64;
    options.name = "again";
    EXPECT_EQ(batches(options), (std::vector<int>{1, 1, 2}));
    options.memory_bytes = 1 << 30;
    options.longest = absl::Nanoseconds(0.5);
    options.name = "and again";
    EXPECT_EQ(batches(options), (std::vector<int>{1, 1}));
  });
}

TEST(Measure, RefusesBadOptions) {
  RunWorld({.grid = {1, 1}}, [](testing::Rank rank) {
    const auto refusal = [&](auto spoil) {
      MeasureOptions options = SmallOptions({1, 1});
      spoil(options);
      const absl::Status status = MeasureCosts(rank.device, rank.transport, options).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      return std::string(status.message());
    };
    EXPECT_THAT(refusal([](auto& o) { o.topology.grid = {1, 2}; }), HasSubstr("transport of 1"));
    EXPECT_THAT(refusal([](auto& o) { o.shapes.push_back({0, 3}); }), HasSubstr("shape 0 x 3"));
    EXPECT_THAT(refusal([](auto& o) { o.batches.clear(); }), HasSubstr("no batch"));
    EXPECT_THAT(refusal([](auto& o) { o.batches = {0}; }), HasSubstr("batch of 0"));
    EXPECT_THAT(refusal([](auto& o) { o.sizes = {6}; }), HasSubstr("payload of 6 bytes"));
    EXPECT_THAT(refusal([](auto& o) { o.repetitions = 0; }), HasSubstr("0 repetitions"));
    EXPECT_THAT(refusal([](auto& o) { o.newton_schulz.iterations = 0; }), HasSubstr("iterations"));
    EXPECT_THAT(refusal([](auto& o) { o.longest = absl::ZeroDuration(); }), HasSubstr("longest"));
  });
  RunWorld({.grid = {1, 2}}, [](testing::Rank rank) {
    MeasureOptions options = SmallOptions({1, 2});
    options.sizes = {40, 40};
    EXPECT_THAT(std::string(MeasureCosts(rank.device, rank.transport, options).status().message()),
                HasSubstr("two different sizes"));
  });
}

// The rank's device, with other memory or another name.
class OtherDevice final : public testing::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  DeviceIdentity identity() const override {
    DeviceIdentity identity = inner_.identity();
    if (!name.empty()) identity.name = name;
    return identity;
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) override {
    if (bytes > most) return absl::ResourceExhaustedError("no memory left");
    return inner_.Allocate(bytes);
  }

  std::string name;
  std::size_t most = std::size_t{1} << 40;
};

TEST(Measure, WhatFailsOnOneRankFailsOnAll) {
  std::vector<absl::Status> full(3), other(3);
  std::string kind;
  RunWorld({.grid = {1, 3}}, [&](testing::Rank rank) {
    if (rank.rank == 0) kind = rank.device.kind();
    OtherDevice device(rank.device);
    MeasureOptions options = SmallOptions({1, 3});
    if (rank.rank == 1) device.most = 300;
    full[rank.rank] = MeasureCosts(device, rank.transport, options).status();
    device.most = 1 << 30;
    if (rank.rank == 2) device.name = "Zen";
    options.name = "again";
    other[rank.rank] = MeasureCosts(device, rank.transport, options).status();
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(full[rank].code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(full[rank].message()),
                AllOf(HasSubstr("rank 1"), HasSubstr("no memory left")));
    EXPECT_EQ(other[rank].code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        std::string(other[rank].message()),
        AllOf(HasSubstr("rank 0 is " + kind + " ("), HasSubstr("rank 2 is " + kind + " (Zen,")));
  }
}

TEST(Timing, IsTheMedianAndTheQuartiles) {
  const runtime::Timing one = runtime::Summarize({3});
  EXPECT_EQ(one.seconds, 3);
  EXPECT_EQ(one.spread, 0);
  const runtime::Timing five = runtime::Summarize({50, 10, 40, 20, 30});
  EXPECT_EQ(five.seconds, 30);
  EXPECT_EQ(five.spread, 20 / 30.0);
  const runtime::Timing four = runtime::Summarize({4, 1, 3, 2});
  EXPECT_EQ(four.seconds, 2.5);
  EXPECT_EQ(four.spread, 1.5 / 2.5);
}

TEST(Work, IsWhatTheRuleRuns) {
  NewtonSchulzOptions options;
  options.operand_type = DType::kBF16;
  options.segments = {2, 2, 1};
  ComputeWork work = *NewtonSchulzWork(options, 30, 12);
  EXPECT_EQ(work.shape,
            (ComputeShape{ComputeKind::kNewtonSchulz, 30, 12, DType::kBF16, "gram 2,2,1"}));
  EXPECT_EQ(work.flops, CostOf(options, 30, 12)->symmetric_flops);
  // 17 products, the input normalized, the result converted; and what shifts diagonals.
  EXPECT_GE(work.launches, 19);
  options.segments = {0};
  EXPECT_EQ(NewtonSchulzWork(options, 30, 12)->shape.recipe, "plain 5");
  options.segments = {1};
  EXPECT_FALSE(NewtonSchulzWork(options, 30, 12).ok());

  MatrixSpec muon, adamw, custom;
  muon.rows = custom.rows = 12;
  muon.cols = custom.cols = 30;
  adamw.rule = AdamWOptions{};
  CustomRule rule;
  rule.flops = 77;
  custom.rule = rule;
  const auto owned = *OwnedWorkOf({muon, adamw, custom});
  ASSERT_EQ(owned.size(), 3u);
  EXPECT_EQ(owned[0]->work.flops, CostOf(NewtonSchulzOptions{}, 12, 30)->symmetric_flops);
  EXPECT_TRUE(owned[0]->batches);
  EXPECT_FALSE(owned[1].has_value());
  EXPECT_EQ(owned[2]->work.flops, 77);
  EXPECT_FALSE(owned[2]->batches);
  std::get<MuonOptions>(muon.rule).newton_schulz.iterations = 0;
  muon.name = "w";
  EXPECT_THAT(std::string(OwnedWorkOf({muon}).status().message()), HasSubstr("matrix 'w'"));
}

}  // namespace
}  // namespace weft
