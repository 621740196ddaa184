// The validator refuses plans that were broken on purpose, and says where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"
#include "tests/scheduler/simulation.h"
#include "tests/support/seed.h"
#include "weft/plan.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Four ranks on a 2 x 2 grid, one matrix per rank.
Plan OwnerPlan(Layout layout = Layout::kReplicated) {
  std::vector<PlanMatrix> matrices;
  for (const char* name : {"q", "k", "v", "o"}) matrices.push_back(Matrix(name, 8, 4, layout));
  PlanRequest request = Request(Strategy::kOwner, 2, 2, std::move(matrices));
  request.check_gradients = true;
  absl::StatusOr<Plan> plan = BuildPlan(request);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  return *std::move(plan);
}

// As OwnerPlan(), with three passes of which each is reduced.
Plan EachPassPlan() {
  PlanRequest request = Request(Strategy::kOwner, 2, 2, {Matrix("q", 8, 4), Matrix("k", 8, 4)});
  request.limits.passes = 3;
  request.limits.reduce_each_pass = true;
  absl::StatusOr<Plan> plan = BuildPlan(request);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  return *std::move(plan);
}

std::int32_t Find(const Plan& plan, const std::function<bool(const Op&)>& wanted) {
  const auto it = std::find_if(plan.ops.begin(), plan.ops.end(), wanted);
  EXPECT_NE(it, plan.ops.end());
  return static_cast<std::int32_t>(it - plan.ops.begin());
}

std::vector<std::int32_t>& LaneOf(Plan& plan, int rank, Lane lane) {
  return plan.lanes[rank][static_cast<int>(lane)];
}

std::string Refusal(const Plan& plan) {
  const absl::Status status = ValidatePlan(plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// Removes an op from the plan as if it had never been planned.
void Drop(Plan& plan, std::int32_t dropped) {
  plan.ops.erase(plan.ops.begin() + dropped);
  const auto renumber = [&](std::vector<std::int32_t>& list) {
    list.erase(std::remove(list.begin(), list.end(), dropped), list.end());
    for (std::int32_t& index : list) index -= index > dropped;
  };
  for (Op& op : plan.ops) {
    renumber(op.after);
    renumber(op.after_previous);
  }
  for (auto& rank : plan.lanes) {
    for (auto& lane : rank) renumber(lane);
  }
}

TEST(BrokenPlan, SwappedCollectivesOfOneRankNameBothOpsRankAndCommunicator) {
  Plan plan = OwnerPlan();
  std::vector<std::int32_t>& lane = LaneOf(plan, 3, Lane::kIntra);
  ASSERT_GE(lane.size(), 2u);
  std::swap(lane[0], lane[1]);
  EXPECT_THAT(Refusal(plan), AllOf(HasSubstr("rank 3"), HasSubstr("rank 2"), HasSubstr("'intra 1'"),
                                   HasSubstr("reduce of 'o'"), HasSubstr("reduce of 'v'")));
}

TEST(BrokenPlan, MissingMemberNamesOpRankAndCommunicator) {
  Plan plan = OwnerPlan();
  const std::int32_t op = Find(plan, [&](const Op& o) {
    return o.kind == OpKind::kBroadcast && plan.groups[o.group].name == "intra" && o.matrix == 1;
  });
  std::vector<std::int32_t>& lane = LaneOf(plan, 1, Lane::kIntra);
  lane.erase(std::find(lane.begin(), lane.end(), op));
  EXPECT_THAT(Refusal(plan), AllOf(HasSubstr("broadcast of 'k'"), HasSubstr("rank 1"),
                                   HasSubstr("communicator 'intra 0'"), HasSubstr("missing")));
}

TEST(BrokenPlan, MissingDeliveryNamesMatrixAndRank) {
  Plan plan = OwnerPlan();
  const std::int32_t op = Find(plan, [&](const Op& o) {
    return o.kind == OpKind::kBroadcast && plan.groups[o.group].name == "intra" && o.matrix == 2;
  });
  // The first rank that is no root.
  const int without = plan.ops[op].root == 0 ? 1 : 0;
  Drop(plan, op);
  EXPECT_THAT(Refusal(plan), AllOf(HasSubstr("'v'"), HasSubstr("rank " + std::to_string(without))));
}

TEST(BrokenPlan, SecondUpdateIsRefused) {
  Plan plan = OwnerPlan();
  const std::int32_t apply = Find(plan, [](const Op& o) { return o.kind == OpKind::kApply; });
  Op again = plan.ops[apply];
  const int owner = plan.matrices[again.matrix].owner;
  again.stage = Stage::kDelivered;
  again.after.clear();
  // Behind all else, so that only its number is wrong.
  const auto last = static_cast<std::int32_t>(plan.ops.size());
  for (std::int32_t i = 0; i < last; ++i) {
    if (plan.ops[i].lane != Lane::kCompute) again.after.push_back(i);
  }
  plan.ops.push_back(again);
  LaneOf(plan, owner, Lane::kCompute).push_back(last);
  for (Op& op : plan.ops) op.after_previous.push_back(last);
  EXPECT_THAT(Refusal(plan), AllOf(HasSubstr("apply of 'q'"), HasSubstr("second time"),
                                   HasSubstr("rank " + std::to_string(owner))));
}

TEST(BrokenPlan, CyclicWaitBetweenRanksNamesTheRing) {
  Plan plan = OwnerPlan();
  // Reductions of the first and the last matrix wait for each other's, crosswise on two nodes.
  const auto reduce = [&](const char* group, int nth) {
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      const Op& op = plan.ops[i];
      if (op.kind == OpKind::kReduce && plan.groups[op.group].name == group && nth-- == 0) {
        return static_cast<std::int32_t>(i);
      }
    }
    ADD_FAILURE() << "no reduce on " << group;
    return 0;
  };
  const std::int32_t intra = reduce("intra", 0), inter = reduce("inter 0", 0);
  ASSERT_EQ(plan.groups[plan.ops[inter].group].PartOf(0), 0);
  plan.ops[intra].after.push_back(inter);
  EXPECT_THAT(Refusal(plan), AllOf(HasSubstr("cyclic wait"), HasSubstr("rank 0"),
                                   HasSubstr("'intra 0'"), HasSubstr("'inter 0'")));
}

TEST(BrokenPlan, CrossedLanesOfTwoRanksAreACyclicWait) {
  // Two communicators of one lane with two common members: each sequence is the same on both
  // ranks, the lanes are not.
  Plan plan;
  plan.topology.grid = {2, 1};
  plan.matrices = {
      Matrix("a", 2, 2, Layout::kReplicated, GradientKind::kLocal, RuleKind::kElementwise)};
  plan.matrices[0].buffers.fill(-1);
  for (Slot slot : {Slot::kGradient, Slot::kReducedGradient, Slot::kWeight}) {
    plan.matrices[0].buffers[static_cast<std::size_t>(slot)] = plan.buffers++;
  }
  plan.groups = {{"first", {{0, 1}}}, {"second", {{0, 1}}}};
  Op op{};
  op.kind = OpKind::kVerdict;
  op.lane = Lane::kInter;
  op.stage = Stage::kReduced;
  op.trigger = Trigger::kStepClosed;
  op.bytes = 4 * VerdictFloats(1, 2);
  plan.ops.push_back(op);
  op.kind = OpKind::kAllReduce;
  op.source = Slot::kGradient;
  op.target = Slot::kReducedGradient;
  op.matrix = 0;
  op.group = 1;
  op.bytes = 16;
  plan.ops.push_back(op);
  plan.lanes.resize(2);
  LaneOf(plan, 0, Lane::kInter) = {0, 1};
  LaneOf(plan, 1, Lane::kInter) = {1, 0};
  EXPECT_THAT(Refusal(plan),
              AllOf(HasSubstr("cyclic wait"), HasSubstr("rank 0's inter lane stands at op 0"),
                    HasSubstr("rank 1's inter lane stands at op 1"), HasSubstr("'first'"),
                    HasSubstr("'second'")));
}

TEST(BrokenPlan, EveryListedEdgeIsNeeded) {
  for (const Plan& plan : {OwnerPlan(), OwnerPlan(Layout::kSharded), EachPassPlan()}) {
    int edges = 0;
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      for (std::size_t e = 0; e < plan.ops[i].after.size(); ++e, ++edges) {
        Plan broken = plan;
        broken.ops[i].after.erase(broken.ops[i].after.begin() + static_cast<std::ptrdiff_t>(e));
        EXPECT_THAT(Refusal(broken), AllOf(HasSubstr("rank "), HasSubstr("op ")));
      }
      for (std::size_t e = 0; e < plan.ops[i].after_previous.size(); ++e, ++edges) {
        Plan broken = plan;
        broken.ops[i].after_previous.erase(broken.ops[i].after_previous.begin() +
                                           static_cast<std::ptrdiff_t>(e));
        EXPECT_THAT(Refusal(broken), HasSubstr("of the step before"));
      }
    }
    EXPECT_GT(edges, 0);
  }
}

// The laws on simulated results are only as good as the simulation's eye for a missing edge.
TEST(BrokenPlan, TheSimulationGoesWrongWithoutAnyOneEdge) {
  for (const Plan& plan : {OwnerPlan(), OwnerPlan(Layout::kSharded), EachPassPlan()}) {
    const auto goes_wrong = [](const Plan& broken) {
      for (std::uint64_t run = 0; run < 2000; ++run) {
        if (!Simulate(broken, 2, Seed() + run).empty()) return true;
      }
      return false;
    };
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      for (auto list : {&Op::after, &Op::after_previous}) {
        for (std::size_t e = 0; e < (plan.ops[i].*list).size(); ++e) {
          Plan broken = plan;
          std::vector<std::int32_t>& edges = broken.ops[i].*list;
          edges.erase(edges.begin() + static_cast<std::ptrdiff_t>(e));
          EXPECT_TRUE(goes_wrong(broken)) << "op " << i << ", edge " << e;
        }
      }
    }
  }
}

TEST(BrokenPlan, UpdateBeforeTheVerdictIsRefused) {
  absl::StatusOr<Plan> plan =
      BuildPlan(Request(Strategy::kReplicated, 1, 2,
                        {Matrix("q", 8, 4, Layout::kReplicated, GradientKind::kReduced)}));
  ASSERT_EQ(plan.status(), absl::OkStatus());
  const std::int32_t momentum =
      Find(*plan, [](const Op& o) { return o.kind == OpKind::kMomentum; });
  plan->ops[momentum].after.clear();
  EXPECT_THAT(Refusal(*plan), AllOf(HasSubstr("momentum of 'q'"), HasSubstr("the verdict"),
                                    HasSubstr("communicator 'world'"), HasSubstr("rank 0")));
}

TEST(BrokenPlan, GradientReducedTwiceOrInPartIsRefused) {
  Plan plan = OwnerPlan();
  plan.matrices[0].gradient = GradientKind::kReduced;
  EXPECT_NE(Refusal(plan), "");
  Plan half = OwnerPlan();
  // The owner's node alone.
  const std::int32_t momentum = Find(half, [](const Op& o) { return o.kind == OpKind::kMomentum; });
  half.ops[momentum].source = Slot::kNodeGradient;
  EXPECT_THAT(Refusal(half), HasSubstr("op "));
}

TEST(BrokenPlan, APassThatIsNotAddedNamesOpAndRank) {
  const Plan whole = EachPassPlan();
  for (const int pass : {1, 2}) {
    const std::int32_t add = Find(whole, [&](const Op& op) {
      return op.kind == OpKind::kAccumulate && op.matrix == 0 && op.pass == pass;
    });
    Plan plan = whole;
    Drop(plan, add);
    EXPECT_THAT(Refusal(plan),
                AllOf(HasSubstr(pass == 1 ? "(accumulate of 'q'" : "(momentum of 'q'"),
                      HasSubstr(pass == 1 ? "does not add to the sum of 2 passes"
                                          : "gets the sum of 8 gradients, not of 12"),
                      HasSubstr("rank " + std::to_string(whole.matrices[0].owner))));
  }
}

TEST(BrokenPlan, APassThatIsReducedTwiceNamesOpRankAndCommunicator) {
  const Plan whole = EachPassPlan();
  const auto reduce = [&](int pass) {
    return Find(whole, [&](const Op& op) {
      return op.kind == OpKind::kReduce && op.source == Slot::kGradient && op.matrix == 0 &&
             op.pass == pass;
    });
  };
  // Alone among ops of its pass.
  Plan instead = whole;
  instead.ops[reduce(1)].pass = 0;
  EXPECT_THAT(Refusal(instead),
              AllOf(HasSubstr("(reduce of 'q' on communicator 'intra"), HasSubstr("is of pass 0")));
  // All of the last pass take the gradients of the one before: the order of passes is kept.
  Plan early = whole;
  for (Op& op : early.ops) {
    if (op.trigger == Trigger::kSubmitted && op.pass == 2) op.pass = 1;
  }
  EXPECT_THAT(Refusal(early),
              AllOf(HasSubstr("on rank "), HasSubstr("' on communicator 'intra "),
                    HasSubstr("reduces the gradient of pass 1 where that of pass 2 is due")));
}

TEST(BrokenPlan, AGradientThatComesLateIsNotWaitedForEarly) {
  Plan plan = EachPassPlan();
  const std::int32_t first = Find(plan, [](const Op& op) { return op.pass == 1; });
  plan.ops[first - 1].pass = 2;
  EXPECT_THAT(Refusal(plan), AllOf(HasSubstr("is of pass 1"), HasSubstr("after an op of pass 2")));
  Plan other = EachPassPlan();
  other.limits.reduce_each_pass = false;
  EXPECT_THAT(Refusal(other), AllOf(HasSubstr("op "), HasSubstr("is of pass 1")));
}

TEST(BrokenPlan, AGradientIsNotHeldBackByWhatComesLater) {
  // The reduction of the first matrix that comes stands behind the verdict.
  Plan late = OwnerPlan();
  const std::int32_t verdict = Find(late, [](const Op& op) { return op.kind == OpKind::kVerdict; });
  late.ops[verdict + 1].trigger = Trigger::kSubmitted;
  EXPECT_THAT(Refusal(late), AllOf(HasSubstr("op " + std::to_string(verdict + 1)),
                                   HasSubstr("comes after the verdict")));
  // A fetch that the trainer asks for in the second pass, before a gradient of the first.
  PlanRequest request =
      Request(Strategy::kOwner, 1, 2,
              {Matrix("q", 8, 4, Layout::kOwned), Matrix("k", 8, 4, Layout::kOwned)});
  request.matrices[1].layer = 1;
  request.limits.passes = 2;
  request.limits.reduce_each_pass = true;
  request.limits.bucket_bytes = 0;
  Plan early = *BuildPlan(request);
  const std::int32_t use = Find(early, [](const Op& op) { return op.kind == OpKind::kUse; });
  early.ops[use].use = static_cast<std::int32_t>(early.uses.size()) / 2;
  EXPECT_THAT(Refusal(early), AllOf(HasSubstr("is of pass 0"), HasSubstr("after an op of pass 1")));
}

TEST(BrokenPlan, AGradientThatIsNotCheckedOnceIsRefused) {
  Plan plan = OwnerPlan();
  const std::int32_t check =
      Find(plan, [&](const Op& op) { return op.kind == OpKind::kCheckGradient && op.matrix == 1; });
  Plan twice = plan;
  Drop(plan, check);
  EXPECT_THAT(Refusal(plan), HasSubstr("of the gradient of matrix 'k', 0 rows are checked, not 8"));
  twice.check_gradients = false;
  EXPECT_THAT(Refusal(twice), HasSubstr("8 rows are checked, not 0"));
}

TEST(BrokenPlan, CollectiveOfOneRankIsRefused) {
  Plan plan = OwnerPlan();
  const std::int32_t op = Find(plan, [](const Op& o) { return o.kind == OpKind::kReduce; });
  plan.groups[plan.ops[op].group].parts = {{plan.ops[op].root}};
  EXPECT_THAT(Refusal(plan), AllOf(HasSubstr("alone"), HasSubstr("reduce")));
}

TEST(BrokenPlan, CommunicatorOnTwoLanesIsRefused) {
  Plan plan = OwnerPlan();
  const std::int32_t op = Find(plan, [](const Op& o) { return o.kind == OpKind::kBroadcast; });
  plan.ops[op].lane = Lane::kIntra;
  EXPECT_THAT(Refusal(plan), AllOf(HasSubstr("broadcast"), HasSubstr("lane")));
}

TEST(BrokenPlan, RootOutsideTheGroupIsRefused) {
  Plan plan = OwnerPlan();
  const std::int32_t op =
      Find(plan, [&](const Op& o) { return plan.groups[o.group].name == "inter 1"; });
  plan.ops[op].root = 2;
  EXPECT_THAT(Refusal(plan), AllOf(HasSubstr("root at place 2 of 2"), HasSubstr("'inter 1'")));
}

TEST(BrokenPlan, PiecesOfOneBroadcastComeFromOneRank) {
  PlanRequest request = Request(Strategy::kOwner, 1, 2, {Matrix("w", 8, 4), Matrix("v", 8, 4)});
  request.limits.piece_bytes = 64;
  absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  const std::int32_t first = Find(*plan, [](const Op& o) {
    return o.kind == OpKind::kBroadcast && o.piece == 0 && o.pieces == 2;
  });
  Plan elsewhere = *plan;
  elsewhere.ops[first].root = 1 - elsewhere.ops[first].root;
  EXPECT_NE(Refusal(elsewhere), "");
  Plan missing = *plan;
  Drop(missing, first + 1);
  EXPECT_THAT(Refusal(missing), HasSubstr("piece"));
}

TEST(BrokenPlan, WrongBytesAreRefused) {
  Plan plan = OwnerPlan();
  plan.ops[0].bytes += 4;
  EXPECT_THAT(Refusal(plan), HasSubstr("bytes"));
}

TEST(BrokenPlan, BuffersOverBudgetNameTheRankTheMatrixAndBothSizes) {
  std::vector<PlanMatrix> matrices = {Matrix("small", 2, 4), Matrix("large", 64, 4)};
  PlanRequest request = Request(Strategy::kOwner, 1, 2, std::move(matrices));
  request.ownership.owners = {0, 1};
  const absl::StatusOr<Plan> built = BuildPlan(request);
  ASSERT_EQ(built.status(), absl::OkStatus());
  // Rank 1: both gradients, and the large one's sum, update and direction.
  constexpr int kNeeded = 4 * (2 * 4 + 64 * 4 * 4);
  ASSERT_EQ(built->limits.buffer_bytes, kNeeded);
  Plan plan = *built;
  --plan.limits.buffer_bytes;
  EXPECT_THAT(Refusal(plan), AllOf(HasSubstr("rank 1 "), HasSubstr(std::to_string(kNeeded)),
                                   HasSubstr("more than the " + std::to_string(kNeeded - 1)),
                                   HasSubstr("matrix 'large' of 64 x 4")));
}

TEST(BrokenPlan, ABufferBesideTheSharedOneIsOverBudget) {
  PlanRequest request = Request(Strategy::kOwner, 1, 2, {Matrix("q", 8, 4), Matrix("k", 8, 4)});
  request.ownership.owners = {1, 1};
  request.limits.bucket_bytes = 0;
  absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  constexpr auto kUpdate = static_cast<std::size_t>(Slot::kUpdate);
  ASSERT_EQ(plan->matrices[0].buffers[kUpdate], plan->matrices[1].buffers[kUpdate]);
  plan->matrices[1].buffers[kUpdate] = plan->buffers++;
  EXPECT_THAT(Refusal(*plan), AllOf(HasSubstr("rank 1 "), HasSubstr("bytes of buffers"),
                                    HasSubstr("matrix '"), HasSubstr("8 x 4")));
  plan->limits.buffer_bytes += 8 * 4 * 4;
  EXPECT_EQ(ValidatePlan(*plan), absl::OkStatus());
}

TEST(BrokenPlan, ATurnThatIsNotAwaitedNamesOpRankAndCommunicator) {
  std::vector<PlanMatrix> matrices;
  for (int i = 0; i < 8; ++i) matrices.push_back(Matrix("m" + std::to_string(i), 8, 4));
  PlanRequest request = Request(Strategy::kOwner, 2, 2, std::move(matrices));
  request.limits.buffers_in_turn = 1;
  request.limits.bucket_bytes = 0;
  const absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  int turns = 0;
  for (std::size_t i = 0; i < plan->ops.size(); ++i) {
    const Op& op = plan->ops[i];
    if (op.target != Slot::kNodeGradient || op.after.empty()) continue;
    Plan broken = *plan;
    broken.ops[i].after.clear();
    EXPECT_THAT(Refusal(broken),
                AllOf(HasSubstr("op " + std::to_string(i) + " (reduce of '" +
                                plan->matrices[op.matrix].name + "' on communicator 'intra "),
                      HasSubstr("rank ")));
    ++turns;
  }
  EXPECT_GT(turns, 0);
}

TEST(BrokenPlan, ASecondCollectiveInFlightNamesOpAndRank) {
  PlanRequest request = Request(Strategy::kOwner, 2, 2, {Matrix("q", 8, 4), Matrix("k", 8, 4)});
  absl::StatusOr<Plan> plan = BuildPlan(request);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  plan->limits.collectives_in_flight = 1;
  EXPECT_THAT(Refusal(*plan),
              AllOf(HasSubstr("op "), HasSubstr("rank "), HasSubstr("on communicator '")));
}

TEST(BrokenPlan, StagesThatGoBackwardsAreRefused) {
  Plan plan = OwnerPlan();
  const std::int32_t op = Find(plan, [](const Op& o) { return o.kind == OpKind::kMomentum; });
  plan.ops[op].stage = Stage::kDelivered;
  EXPECT_THAT(Refusal(plan), HasSubstr("stage"));
}

TEST(BrokenPlan, IndicesOutOfRangeAreRefused) {
  for (const std::function<void(Plan&)>& breakage : std::vector<std::function<void(Plan&)>>{
           [](Plan& p) { p.ops[0].group = 99; },
           [](Plan& p) { p.ops[0].group = -1; },
           [](Plan& p) { p.ops[0].matrix = 99; },
           [](Plan& p) { p.ops[0].matrix = -1; },
           [](Plan& p) { p.ops[1].after = {1 << 20}; },
           [](Plan& p) { p.ops[1].after = {-1}; },
           [](Plan& p) { p.ops[1].after_previous = {1 << 20}; },
           [](Plan& p) { p.lanes[0][1].push_back(1 << 20); },
           [](Plan& p) { p.lanes[0][1].push_back(-5); },
           [](Plan& p) { p.lanes.pop_back(); },
           [](Plan& p) { p.groups[0].parts = {}; },
           [](Plan& p) {
             p.groups[0].parts = {{0, 9}};
           },
           [](Plan& p) {
             p.groups[0].parts = {{0, 1}, {1, 2}};
           },
           [](Plan& p) { p.ops[0].set = 0; },
           [](Plan& p) { p.matrices[0].bucket = 0; },
           [](Plan& p) { p.matrices[0].buffers[1] = -1; },
           [](Plan& p) { p.matrices[0].buffers[1] = 99; },
           [](Plan& p) { p.matrices[0].rows = p.matrices[0].cols = std::int64_t{1} << 62; },
           [](Plan& p) { p.matrices[0].rows = -1; },
           [](Plan& p) { p.matrices[0].owner = 17; },
           [](Plan& p) { p.matrices[0].owner = -1; },
           [](Plan& p) { p.ops[0].kind = static_cast<OpKind>(200); },
           [](Plan& p) { p.ops[0].source = static_cast<Slot>(200); },
           [](Plan& p) { p.topology.grid.nodes = 0; }}) {
    Plan plan = OwnerPlan();
    breakage(plan);
    EXPECT_NE(Refusal(plan), "");
  }
}

}  // namespace
}  // namespace weft::testing
