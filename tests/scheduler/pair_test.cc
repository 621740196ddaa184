// Collectives with opposite roots that run as one in groups of two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"
#include "weft/plan.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Lines = std::vector<std::string>;

constexpr FormChoices kPairs = {{-1, -1, -1}, {-1, -1, -1}, {0, 0, 0}};

Plan Build(const PlanRequest& request) {
  absl::StatusOr<Plan> plan = BuildPlan(request);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  return *std::move(plan);
}

// One matrix of `rows` rows for each owner.
PlanRequest OwnedBy(int nodes, int ranks_per_node, const std::vector<int>& owners,
                    std::int64_t rows = 8, Layout layout = Layout::kReplicated) {
  PlanRequest request = Request(Strategy::kOwner, nodes, ranks_per_node, {});
  for (std::size_t i = 0; i < owners.size(); ++i) {
    request.matrices.push_back(Matrix(std::string(1, static_cast<char>('a' + i)), rows, 4, layout));
  }
  request.ownership.owners = owners;
  request.limits.bucket_bytes = 0;
  request.forms = kPairs;
  return request;
}

// Collectives of matrices, by the matrices' names: "reduce inter 0: ba" is a pair.
Lines Collectives(const Plan& plan) {
  Lines lines;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.matrix < 0 || !IsCollective(op.kind)) continue;
    if (i > 0 && plan.ops[i - 1].with_next) {
      lines.back() += plan.matrices[op.matrix].name;
      continue;
    }
    lines.push_back(std::string(Name(op.kind)) + " " + plan.groups[op.group].name + ": " +
                    plan.matrices[op.matrix].name);
  }
  return lines;
}

TEST(Pairs, OneWaitsForTheOtherWay) {
  EXPECT_EQ(Collectives(Build(OwnedBy(1, 2, {0, 1, 0, 1}))),
            (Lines{"reduce world: dc", "reduce world: ba", "broadcast world: ab",
                   "broadcast world: cd"}));
}

TEST(Pairs, TheOldestOfThreeGoesAlone) {
  // From the last: e, d and c are owned by rank 0.
  EXPECT_EQ(Collectives(Build(OwnedBy(1, 2, {1, 1, 0, 0, 0}))),
            (Lines{"reduce world: e", "reduce world: db", "reduce world: ca",
                   // Rank 1 is done with its two before rank 0 with its third.
                   "broadcast world: ac", "broadcast world: bd", "broadcast world: e"}));
}

TEST(Pairs, NoneWaitsLongerThanTwoRoundsOfOwners) {
  // On 2 x 2, o is the one of inter group 1, and nearly all others come after it.
  std::vector<int> owners(16, 0);
  owners[14] = 1;
  const Lines lines = Collectives(Build(OwnedBy(2, 2, owners)));
  const auto alone = std::find(lines.begin(), lines.end(), "reduce inter 1: o");
  ASSERT_NE(alone, lines.end());
  EXPECT_LT(alone - lines.begin(), 20) << "before the last reduction";
}

TEST(Pairs, EachLevelHasItsOwn) {
  // Owners (0, 0), (0, 1), (1, 0), (1, 1) of node and local rank.
  EXPECT_EQ(Collectives(Build(OwnedBy(2, 2, {0, 1, 2, 3}))),
            (Lines{"reduce intra: dc", "reduce intra: ba", "reduce inter 1: db",
                   "reduce inter 0: ca", "broadcast inter 0: ac", "broadcast inter 1: bd",
                   "broadcast intra: ab", "broadcast intra: cd"}));
}

TEST(Pairs, VeryUnequalOnesGoAlone) {
  PlanRequest request = OwnedBy(1, 2, {0, 1});
  request.matrices[1].rows = 17;
  EXPECT_EQ(Collectives(Build(request)), (Lines{"reduce world: b", "reduce world: a",
                                                "broadcast world: a", "broadcast world: b"}));
  request.matrices[1].rows = 16;
  EXPECT_EQ(Collectives(Build(request)), (Lines{"reduce world: ba", "broadcast world: ab"}));
}

TEST(Pairs, OnlyFromTheChosenPayloadOn) {
  PlanRequest request = OwnedBy(1, 2, {0, 1});
  request.forms.pair_from[0] = 8 * 4 * 4;
  EXPECT_EQ(Collectives(Build(request)), (Lines{"reduce world: ba", "broadcast world: ab"}));
  ++request.forms.pair_from[0];
  EXPECT_EQ(Collectives(Build(request)).size(), 4u);
}

TEST(Pairs, ShardsAreGatheredAndScatteredInPairs) {
  PlanRequest request = OwnedBy(1, 2, {0, 1}, 8, Layout::kSharded);
  for (PlanMatrix& matrix : request.matrices) matrix.gradient = GradientKind::kReduced;
  EXPECT_EQ(Collectives(Build(request)), (Lines{"gather world: ba", "scatter world: ab"}));
}

// With one buffer in turn nobody can wait in it for another: the other needs it.
TEST(Pairs, WhoIsInTheWayOfTheNextTurnDoesNotWait) {
  PlanRequest request = OwnedBy(2, 3, {0, 3, 0, 3});
  request.limits.buffers_in_turn = 2;
  EXPECT_THAT(Collectives(Build(request)), AllOf(::testing::Contains("reduce inter 0: dc"),
                                                 ::testing::Contains("reduce inter 0: ba")));
  request.limits.buffers_in_turn = 1;
  const Plan plan = Build(request);
  for (const Op& op : plan.ops) EXPECT_FALSE(op.with_next && op.kind == OpKind::kReduce);
}

using Travel = std::tuple<std::int32_t, OpKind, std::int32_t, Slot, Slot, std::int64_t, int>;
std::map<Travel, int> Travels(const Plan& plan) {
  std::map<Travel, int> travels;
  for (const Op& op : plan.ops) {
    ++travels[{op.matrix, op.kind, op.root, op.source, op.target, op.bytes, op.use}];
  }
  return travels;
}

RC_GTEST_PROP(Pairs, AnyPlanHasTheSameOpsAndItsPairsAreOpposite, ()) {
  PlanRequest request = DrawRequest(
      {4, 4, 24, 40}, *rc::gen::element(ProcessGrid{1, 2}, ProcessGrid{2, 1}, ProcessGrid{2, 2},
                                        ProcessGrid{2, 3}, ProcessGrid{3, 2}));
  request.forms = kPairs;
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  RC_ASSERT(plan.status() == absl::OkStatus());
  request.forms.pair_from = {-1, -1, -1};
  const absl::StatusOr<Plan> apart = BuildPlan(request);
  RC_ASSERT(apart.status() == absl::OkStatus());
  RC_ASSERT(Travels(*plan) == Travels(*apart));
  int pairs = 0;
  for (std::size_t i = 0; i < plan->ops.size(); ++i) {
    const Op& op = plan->ops[i];
    RC_ASSERT(!apart->ops[std::min(i, apart->ops.size() - 1)].with_next);
    if (!op.with_next) continue;
    ++pairs;
    const Op& next = plan->ops[i + 1];
    RC_ASSERT(next.kind == op.kind);
    RC_ASSERT(next.group == op.group);
    RC_ASSERT(next.root + op.root == 1);
    RC_ASSERT(next.matrix != op.matrix);
    for (const auto& part : plan->groups[op.group].parts) {
      RC_ASSERT(part.size() == 2u);
      for (const int rank : part) {
        const auto& lane = plan->lanes[rank][static_cast<std::size_t>(op.lane)];
        const auto place = std::find(lane.begin(), lane.end(), static_cast<std::int32_t>(i));
        RC_ASSERT(place != lane.end());
        RC_ASSERT(*(place + 1) == static_cast<std::int32_t>(i) + 1);
      }
    }
  }
  RC_CLASSIFY(pairs > 0, "has pairs");
}

TEST(BrokenPair, IsRefusedWithBothOpsAndTheCommunicator) {
  const Plan good = Build(OwnedBy(2, 2, {0, 1, 2, 3}));
  const auto find = [&](OpKind kind, Lane lane) {
    const auto it = std::find_if(good.ops.begin(), good.ops.end(), [&](const Op& op) {
      return op.with_next && op.kind == kind && op.lane == lane;
    });
    EXPECT_NE(it, good.ops.end());
    return static_cast<std::size_t>(it - good.ops.begin());
  };
  const std::size_t reduce = find(OpKind::kReduce, Lane::kInter);
  const std::size_t broadcast = find(OpKind::kBroadcast, Lane::kIntra);
  const auto refusal = [&](const std::function<void(Plan&)>& breakage) {
    Plan plan = good;
    breakage(plan);
    const absl::Status status = ValidatePlan(plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto named = [&](std::size_t op) {
    return AllOf(HasSubstr("op " + std::to_string(op) + " ("),
                 HasSubstr("op " + std::to_string(op + 1) + " ("), HasSubstr("on communicator '"));
  };
  const auto opposite = HasSubstr("not opposite collectives of a group of two");
  EXPECT_THAT(refusal([&](Plan& p) { p.ops[reduce + 1].root = p.ops[reduce].root; }),
              AllOf(named(reduce), opposite));
  EXPECT_THAT(refusal([&](Plan& p) { p.ops[reduce + 1].kind = OpKind::kGather; }),
              AllOf(named(reduce), opposite));
  EXPECT_THAT(refusal([&](Plan& p) { p.ops[reduce + 1].with_next = true; }),
              AllOf(HasSubstr("op " + std::to_string(reduce + 1) + " ("), opposite));
  EXPECT_THAT(refusal([&](Plan& p) { p.ops[broadcast + 1].form = CollectiveForm::kSplit; }),
              AllOf(named(broadcast), opposite));
  EXPECT_THAT(refusal([&](Plan& p) {
                p.ops[reduce + 1].after.push_back(static_cast<std::int32_t>(reduce));
              }),
              AllOf(named(reduce), HasSubstr("waits for")));
  EXPECT_THAT(refusal([&](Plan& p) {
                constexpr auto kNode = static_cast<std::size_t>(Slot::kNodeGradient);
                p.matrices[p.ops[reduce].matrix].buffers[kNode] =
                    p.matrices[p.ops[reduce + 1].matrix].buffers[kNode];
              }),
              AllOf(named(reduce), HasSubstr("same memory")));
  Plan last = Build(OwnedBy(1, 2, {0, 1, 0}));
  last.ops.back().with_next = true;
  EXPECT_THAT(std::string(ValidatePlan(last).message()), HasSubstr("has no op to run with"));
  // A pair in a group of four.
  Plan larger = Build(OwnedBy(1, 4, {0, 1}));
  ASSERT_EQ(larger.ops[0].kind, OpKind::kReduce);
  larger.ops[0].with_next = true;
  EXPECT_THAT(std::string(ValidatePlan(larger).message()), opposite);
}

}  // namespace
}  // namespace weft::testing
