// What plans hold in memory, told by replays that read the ops alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/memory_replay.h"
#include "tests/scheduler/requests.h"
#include "tests/support/property.h"
#include "tests/support/seed.h"
#include "weft/plan.h"
#include "weft/plan_cost.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kLargeCases = 1000;

Plan Build(const PlanRequest& request) {
  absl::StatusOr<Plan> plan = BuildPlan(request);
  RC_ASSERT(plan.status() == absl::OkStatus());
  return *std::move(plan);
}

std::uint64_t DrawSeed() { return *rc::gen::arbitrary<std::uint64_t>(); }

// Sum of a rank's buffers.
std::int64_t BufferBytes(const Plan& plan, int rank) {
  const RankBuffers buffers = BuffersOfRank(plan, rank);
  const std::int64_t scratch =
      std::accumulate(buffers.scratch.begin(), buffers.scratch.end(), std::int64_t{0});
  return std::accumulate(buffers.bytes.begin(), buffers.bytes.end(), scratch);
}

void CheckMemory(const Plan& plan, int steps) {
  RC_ASSERT(ReplayMemory(plan, steps, DrawSeed(), Edges::kOfRank).error == "");
  const MemoryUse use = ReplayMemory(plan, steps, DrawSeed());
  RC_ASSERT(use.error == "");
  std::int64_t most = 0;
  for (int rank = 0; rank < static_cast<int>(plan.lanes.size()); ++rank) {
    const std::int64_t bytes = BufferBytes(plan, rank);
    RC_ASSERT(use.peak_bytes[rank] <= bytes);
    RC_ASSERT(bytes <= plan.limits.buffer_bytes);
    most = std::max(most, bytes);
  }
  RC_ASSERT(most == plan.limits.buffer_bytes);
}

TEST(MemoryLaw, PlansOfAnyModelAreValidAndStayUnderTheirBound) {
  HoldsInCases(kLargeCases, [] {
    DrawLimits limits;
    // Small models and worlds as often as large ones.
    limits.most_matrices = *rc::gen::element(10, 100, 300);
    limits.most_rows = 4096;
    const Plan plan = Build(DrawRequest(limits, DrawGrid(*rc::gen::element(8, 64))));
    RC_ASSERT(ValidatePlan(plan) == absl::OkStatus());
    CheckMemory(plan, 2);
  });
}

RC_GTEST_PROP(MemoryLaw, NoOrderMakesContentsOverlap, ()) {
  const Plan plan = Build(DrawRequest({4, 4, 12, 40}));
  for (int run = 0; run < 5; ++run) CheckMemory(plan, 3);
}

RC_GTEST_PROP(MemoryLaw, ABudgetIsKeptOrRefusedToTheByte, ()) {
  PlanRequest request = DrawRequest({});
  Plan plan = Build(request);
  const std::int64_t needed = plan.limits.buffer_bytes;
  RC_PRE(needed > 1);  // 0 asks for no bound
  request.limits.buffer_bytes = needed;
  RC_ASSERT(Fingerprint(Build(request)) == Fingerprint(plan));

  --request.limits.buffer_bytes;
  const absl::Status refused = BuildPlan(request).status();
  RC_ASSERT(refused.code() == absl::StatusCode::kFailedPrecondition);
  plan.limits.buffer_bytes = needed - 1;
  const absl::Status invalid = ValidatePlan(plan);
  RC_ASSERT(invalid.code() == absl::StatusCode::kInvalidArgument);
  for (const absl::Status& status : {refused, invalid}) {
    const std::string text(status.message());
    const std::size_t rank = text.find("rank ");
    const std::size_t name = text.find("matrix '");
    RC_ASSERT(rank != std::string::npos && name != std::string::npos);
    RC_ASSERT(text.find(std::to_string(needed - 1)) != std::string::npos);
    RC_ASSERT(BufferBytes(plan, std::stoi(text.substr(rank + 5))) == needed);
    const std::size_t begin = name + 8;
    const std::string matrix = text.substr(begin, text.find('\'', begin) - begin);
    RC_ASSERT(std::any_of(plan.matrices.begin(), plan.matrices.end(),
                          [&](const PlanMatrix& each) { return each.name == matrix; }));
  }
}

// Of the buffers that owned weights are fetched into.
std::int64_t FetchedBytes(const Plan& plan, int rank) {
  const std::vector<std::int64_t> bytes = BuffersOfRank(plan, rank).bytes;
  std::set<std::int32_t> buffers;
  for (const PlanMatrix& matrix : plan.matrices) {
    const std::int32_t buffer = matrix.buffers[static_cast<std::size_t>(Slot::kWeight)];
    if (matrix.layout == Layout::kOwned && buffer >= 0) buffers.insert(buffer);
  }
  std::int64_t sum = 0;
  for (std::int32_t buffer : buffers) sum += bytes[buffer];
  return sum;
}

RC_GTEST_PROP(MemoryLaw, FetchedWeightsStayUnderTheirBoundOrAreRefused, ()) {
  DrawLimits limits{3, 3, 16, 64};
  limits.layouts = {Layout::kReplicated, Layout::kOwned};
  PlanRequest request = DrawRequest(limits);
  RC_PRE(request.strategy == Strategy::kOwner);
  request.limits.fetched_bytes = *Evenly<std::int64_t>(1, 30000);
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  RC_CLASSIFY(plan.ok(), "kept");
  if (!plan.ok()) {
    RC_ASSERT(plan.status().code() == absl::StatusCode::kFailedPrecondition);
    RC_ASSERT(plan.status().message().find("layer") != absl::string_view::npos);
    return;
  }
  for (int rank = 0; rank < static_cast<int>(plan->lanes.size()); ++rank) {
    RC_ASSERT(FetchedBytes(*plan, rank) <= request.limits.fetched_bytes);
  }
  CheckMemory(*plan, 2);
}

RC_GTEST_PROP(MemoryLaw, ARanksOwnPlanStatesItsOwnBytes, ()) {
  PlanRequest request = DrawRequest({3, 3, 12, 64});
  const Plan plan = Build(request);
  const int rank = *Evenly(0, request.topology.grid.size());
  const std::int64_t bytes = BufferBytes(plan, rank);
  absl::StatusOr<Plan> own = BuildRankPlan(request, rank);
  RC_ASSERT(own.status() == absl::OkStatus());
  RC_ASSERT(own->limits.buffer_bytes == bytes);
  RC_ASSERT(BuffersOfRank(*own, rank).bytes == BuffersOfRank(plan, rank).bytes);
  RC_ASSERT(own->lanes[rank] == plan.lanes[rank]);
  RC_PRE(bytes > 1);
  request.limits.buffer_bytes = bytes - 1;
  own = BuildRankPlan(request, rank);
  RC_ASSERT(own.status().code() == absl::StatusCode::kFailedPrecondition);
  const std::string named = "rank " + std::to_string(rank) + " ";
  RC_ASSERT(own.status().message().find(named) != absl::string_view::npos);
}

// Each rank's largest alone, and all of them side by side, are the ends of what turns can cost.
RC_GTEST_PROP(MemoryLaw, TurnsHoldNoLessThanOneAndNoMoreThanAll, ()) {
  PlanRequest request = DrawRequest({});
  const auto build = [&](int turns) {
    request.limits.buffers_in_turn = turns;
    return Build(request);
  };
  const Plan one = build(1), some = build(*Evenly(2, 9)), all = build(1000);
  for (int rank = 0; rank < static_cast<int>(one.lanes.size()); ++rank) {
    RC_ASSERT(BufferBytes(one, rank) <= BufferBytes(some, rank));
    RC_ASSERT(BufferBytes(some, rank) <= BufferBytes(all, rank));
  }
}

// Gives a slot of a matrix the buffer of another's; false where the drawn ones have none.
bool MergeBuffers(Plan& plan) {
  const auto draw = [&]() -> PlanMatrix& {
    return plan.matrices[*Evenly<std::size_t>(0, plan.matrices.size())];
  };
  const int slot = *Evenly(1, kSlotCount);
  // Mostly two slots of one kind: others are refused before anything is looked at.
  const int other = *Evenly(0, 8) == 0 ? *Evenly(1, kSlotCount) : slot;
  std::int32_t& buffer = draw().buffers[slot];
  const std::int32_t taken = draw().buffers[other];
  if (buffer < 0 || taken < 0 || buffer == taken) return false;
  buffer = taken;
  return true;
}

// Moves a wait to another op; false where the drawn op has none.
bool MoveEdge(Plan& plan) {
  Op& op = plan.ops[*Evenly<std::size_t>(0, plan.ops.size())];
  std::vector<std::int32_t>& edges = *rc::gen::arbitrary<bool>() ? op.after : op.after_previous;
  if (edges.empty()) return false;
  const auto op_count = static_cast<std::int32_t>(plan.ops.size());
  edges[*Evenly<std::size_t>(0, edges.size())] = *Evenly<std::int32_t>(0, op_count);
  return true;
}

TEST(MemoryLaw, WhatTheValidatorAcceptsNeverOverlapsEvenAfterMutations) {
  int accepted = 0;
  HoldsInCases(3000, [&] {
    Plan plan = Build(DrawRequest({3, 3, 8, 12}));
    bool mutated = false;
    for (int i = 0; i < 30 && !mutated; ++i) {
      mutated = *rc::gen::arbitrary<bool>() ? MergeBuffers(plan) : MoveEdge(plan);
    }
    if (!mutated || !ValidatePlan(plan).ok()) return;
    ++accepted;
    for (int run = 0; run < 5; ++run) RC_ASSERT(ReplayMemory(plan, 2, DrawSeed()).error == "");
  });
  std::printf("%d mutated plans were accepted\n", accepted);
}

// The laws are only as good as the replay's eye.
class BrokenMemory : public ::testing::Test {
 protected:
  static PlanRequest MakeRequest() {
    std::vector<PlanMatrix> matrices;
    for (int i = 0; i < 8; ++i) matrices.push_back(Matrix("m" + std::to_string(i), 8, 4));
    PlanRequest request = Request(Strategy::kOwner, 2, 2, std::move(matrices));
    request.limits.buffers_in_turn = 1;
    return request;
  }
  static Plan Make(const PlanRequest& request) {
    absl::StatusOr<Plan> plan = BuildPlan(request);
    EXPECT_EQ(plan.status(), absl::OkStatus());
    return *std::move(plan);
  }
  // What some order shows to be wrong.
  static std::string Wrong(const Plan& plan) {
    for (std::uint64_t run = 0; run < 2000; ++run) {
      std::string error = ReplayMemory(plan, 2, Seed() + run).error;
      if (!error.empty()) return error;
    }
    return "";
  }
};

TEST_F(BrokenMemory, ATurnThatIsNotAwaitedIsSeen) {
  const Plan plan = Make(MakeRequest());
  EXPECT_EQ(Wrong(plan), "");
  // Every wait of a node's sum for the turn before it.
  int turns = 0;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    if (plan.ops[i].target != Slot::kNodeGradient) continue;
    for (std::size_t e = 0; e < plan.ops[i].after.size(); ++e, ++turns) {
      Plan broken = plan;
      broken.ops[i].after.erase(broken.ops[i].after.begin() + static_cast<std::ptrdiff_t>(e));
      EXPECT_THAT(Wrong(broken), HasSubstr("node_gradient"));
    }
  }
  EXPECT_GT(turns, 0);
}

TEST_F(BrokenMemory, ABufferOfTwoIsSeen) {
  Plan plan = Make(MakeRequest());
  constexpr auto kReduced = static_cast<std::size_t>(Slot::kReducedGradient);
  const auto same_owner = std::find_if(
      plan.matrices.begin() + 1, plan.matrices.end(),
      [&](const PlanMatrix& matrix) { return matrix.owner == plan.matrices[0].owner; });
  ASSERT_NE(same_owner, plan.matrices.end());
  same_owner->buffers[kReduced] = plan.matrices[0].buffers[kReduced];
  EXPECT_THAT(Wrong(plan), HasSubstr("overwrites the reduced_gradient of '"));
  EXPECT_EQ(ValidatePlan(plan).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BrokenMemory, ACollectiveTooManyIsSeen) {
  PlanRequest request = MakeRequest();
  request.limits.buffers_in_turn = 8;
  Plan two = Make(request);
  EXPECT_EQ(Wrong(two), "");
  two.limits.collectives_in_flight = 1;
  EXPECT_THAT(Wrong(two), HasSubstr("one collective too many"));
  request.limits.collectives_in_flight = 1;
  EXPECT_EQ(Wrong(Make(request)), "");
}

}  // namespace
}  // namespace weft::testing
