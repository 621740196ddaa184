// Owners as requests ask for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "scheduler/owner_assignment.h"
#include "tests/scheduler/requests.h"
#include "weft/plan.h"
#include "weft/plan_cost.h"

namespace weft::testing {
namespace {

using scheduler::OwnerAssignment;
using scheduler::SolveOwners;
using ::testing::HasSubstr;

std::vector<PlanMatrix> Few() {
  return {Matrix("a", 8, 8), Matrix("b", 8, 8),
          Matrix("c", 8, 8, Layout::kReplicated, GradientKind::kLocal, RuleKind::kElementwise),
          Matrix("d", 16, 8)};
}

TEST(Ownership, GivenOwnersAreTakenAsTheyAre) {
  PlanRequest request = Request(Strategy::kOwner, 2, 2, Few());
  request.ownership.owners = {3, 3, -1, 0};
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  for (std::size_t m = 0; m < 4; ++m) {
    EXPECT_EQ(plan->matrices[m].owner, request.ownership.owners[m]);
  }
  EXPECT_NE(Fingerprint(*plan), Fingerprint(*BuildPlan(Request(Strategy::kOwner, 2, 2, Few()))));
}

TEST(Ownership, SolvedOwnersMakeAPlan) {
  PlanRequest request = Request(Strategy::kOwner, 2, 2, Few());
  const absl::StatusOr<OwnerAssignment> solved = SolveOwners(request, {});
  ASSERT_EQ(solved.status(), absl::OkStatus());
  EXPECT_EQ(solved->owners[2], -1);
  std::vector<int> batched;
  for (const auto& batch : solved->batches) {
    batched.insert(batched.end(), batch.matrices.begin(), batch.matrices.end());
  }
  std::sort(batched.begin(), batched.end());
  EXPECT_EQ(batched, (std::vector<int>{0, 1, 3}));
  request.ownership.owners = solved->owners;
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  std::vector<double> loads(4, 0.0);
  for (const PlanMatrix& matrix : plan->matrices) {
    if (matrix.owner >= 0) loads[matrix.owner] += matrix.flops;
  }
  EXPECT_EQ(*std::max_element(loads.begin(), loads.end()), solved->report.makespan);
}

TEST(Ownership, OneHugeMatrixAmongSmallOnes) {
  std::vector<PlanMatrix> matrices = {Matrix("huge", 50000, 64)};
  for (int i = 0; i < 12; ++i) matrices.push_back(Matrix("small" + std::to_string(i), 64, 64));
  const auto solved = SolveOwners(Request(Strategy::kOwner, 1, 4, matrices), {});
  ASSERT_EQ(solved.status(), absl::OkStatus());
  // No makespan is below the huge one's own cost, and all small ones together cost less.
  EXPECT_LE(solved->report.makespan, 1.05 * matrices[0].flops);
  EXPECT_EQ(std::count(solved->owners.begin(), solved->owners.end(), solved->owners[0]), 1);
}

TEST(Ownership, TablesDecideNotFlops) {
  PlanRequest request = Request(Strategy::kOwner, 1, 2,
                                {Matrix("a", 8, 8), Matrix("b", 8, 8), Matrix("c", 640, 640)});
  // A batch of the small two costs hardly more than one of them, the large one as much as one.
  request.ownership.batch_costs = {{10, 11}, {10}};
  request.ownership.matrix_table = {0, 0, 1};
  const auto solved = SolveOwners(request, {});
  ASSERT_EQ(solved.status(), absl::OkStatus());
  EXPECT_EQ(solved->report.makespan, 11);
  EXPECT_EQ(solved->owners[0], solved->owners[1]);
  EXPECT_NE(solved->owners[0], solved->owners[2]);
  ASSERT_EQ(solved->batches.size(), 2u);
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_EQ(plan->matrices[0].owner, plan->matrices[1].owner);
}

TEST(Ownership, TheCapOfStateIsKeptAgainstTheBalance) {
  // The dear matrix has little state, the cheap ones much: by cost alone one rank gets both.
  std::vector<PlanMatrix> matrices = {Matrix("dear", 10, 10), Matrix("x", 10, 10),
                                      Matrix("y", 10, 10)};
  matrices[0].flops = 2;
  matrices[1].flops = matrices[2].flops = 1;
  PlanRequest request = Request(Strategy::kOwner, 1, 2, matrices);
  absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_EQ(plan->matrices[1].owner, plan->matrices[2].owner);
  request.matrices[0].state_bytes_per_element = 0;
  request.ownership.state_bytes_cap = 400;
  plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  for (int rank = 0; rank < 2; ++rank) EXPECT_LE(CostOfRank(*plan, rank).state_bytes, 400);
  request.ownership.owners = {0, 1, 1};
  EXPECT_THAT(std::string(BuildPlan(request).status().message()), HasSubstr("rank 1"));
  request.ownership.owners.clear();
  request.ownership.state_bytes_cap = 399;
  const absl::Status status = BuildPlan(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'x'"));
}

TEST(Ownership, InterGroupsShareTheTraffic) {
  std::vector<PlanMatrix> matrices;
  for (int i = 0; i < 12; ++i) {
    matrices.push_back(Matrix("m" + std::to_string(i), i % 3 == 0 ? 96 : 8, 32));
    matrices.back().flops = i % 3 == 0 ? 1 : 4;
  }
  PlanRequest request = Request(Strategy::kOwner, 2, 2, matrices);
  request.ownership.inter_group_factor = 1.1;
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  std::vector<double> bytes(2, 0);
  for (const Op& op : plan->ops) {
    if (op.lane == Lane::kInter && op.root >= 0) {
      bytes[plan->matrices[op.matrix].owner % 2] += op.bytes;
    }
  }
  EXPECT_LE(std::max(bytes[0], bytes[1]), 1.1 * (bytes[0] + bytes[1]) / 2);
  request.ownership.owners.assign(12, 1);
  EXPECT_THAT(std::string(BuildPlan(request).status().message()), HasSubstr("inter group 1"));
}

TEST(Ownership, WhatInterGroupsCarryIsWhatTheCapCounts) {
  for (Layout layout : {Layout::kReplicated, Layout::kSharded, Layout::kNodeSharded}) {
    for (GradientKind gradient : {GradientKind::kLocal, GradientKind::kReduced}) {
      for (RuleKind rule : {RuleKind::kMuon, RuleKind::kCustom}) {
        for (DType dtype : kDTypes) {
          PlanRequest request =
              Request(Strategy::kOwner, 2, 2, {Matrix("a", 8, 4, layout, gradient, rule)});
          request.matrices[0].dtype = dtype;
          const absl::StatusOr<Plan> plan = BuildPlan(request);
          ASSERT_EQ(plan.status(), absl::OkStatus());
          std::int64_t carried = 0;
          for (const Op& op : plan->ops) {
            // What goes between replicas goes over all of them alike.
            const bool one = plan->groups[op.group].parts.size() == 1;
            if (op.lane == Lane::kInter && op.root >= 0 && one) carried += op.bytes;
          }
          OwnershipOptions options;
          options.inter_group_factor = 2;
          EXPECT_EQ(scheduler::Pose(*plan, options).problem.classes.at(0).inter_bytes, carried);
        }
      }
    }
  }
}

TEST(Ownership, BadOptionsAreNamed) {
  struct Breakage {
    std::function<void(OwnershipOptions&)> what;
    std::string named;
  };
  const std::vector<Breakage> breakages = {
      {[](OwnershipOptions& o) {
         o.owners = {0, 0, -1, 4};
       },
       "'d'"},
      {[](OwnershipOptions& o) {
         o.owners = {0, -1, -1, 3};
       },
       "'b'"},
      {[](OwnershipOptions& o) {
         o.owners = {0, 0, 0, 3};
       },
       "'c'"},
      {[](OwnershipOptions& o) { o.owners = {0}; }, "owners for 1 of 4"},
      {[](OwnershipOptions& o) { o.layers = {0}; }, "layers for 1 of 4"},
      {[](OwnershipOptions& o) { o.batch_costs = {{1.0}}; }, "cost tables"},
      {[](OwnershipOptions& o) { o.batch_costs = {{}}; }, "table 0"},
      {[](OwnershipOptions& o) {
         o.batch_costs = {{1.0}, {std::numeric_limits<double>::quiet_NaN()}};
       },
       "table 1"},
      {[](OwnershipOptions& o) {
         o.batch_costs = {{1.0}};
         o.matrix_table = {0, 1, 0, 0};
       },
       "'b'"},
      {[](OwnershipOptions& o) { o.state_bytes_cap = -1; }, "cap of state"},
      {[](OwnershipOptions& o) { o.inter_group_factor = 0.5; }, "0.5"}};
  for (const Breakage& breakage : breakages) {
    PlanRequest request = Request(Strategy::kOwner, 2, 2, Few());
    breakage.what(request.ownership);
    const absl::Status status = BuildPlan(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << breakage.named;
    EXPECT_THAT(std::string(status.message()), HasSubstr(breakage.named));
  }
}

}  // namespace
}  // namespace weft::testing
