// What holds for every plan that any request gives.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/requests.h"
#include "tests/scheduler/simulation.h"
#include "tests/support/seed.h"
#include "weft/plan.h"
#include "weft/plan_cost.h"

namespace weft::testing {
namespace {

Plan Build(const PlanRequest& request) {
  absl::StatusOr<Plan> plan = BuildPlan(request);
  RC_ASSERT(plan.status() == absl::OkStatus());
  return *std::move(plan);
}

std::uint64_t DrawSeed() { return *rc::gen::arbitrary<std::uint64_t>(); }

RC_GTEST_PROP(PlanLaw, TwoStepsGiveTheSerialResultInAnyOrder, ()) {
  const DrawLimits limits{4, 4, 10, 24};
  const Plan plan = Build(DrawRequest(limits));
  for (int run = 0; run < 3; ++run) RC_ASSERT(Simulate(plan, 2, DrawSeed()) == "");
}

TEST(PlanLaw, LargeGridsGiveTheSerialResult) {
  for (const auto& [nodes, locals] :
       std::vector<std::pair<int, int>>{{1, 64}, {64, 1}, {8, 8}, {5, 9}}) {
    for (Strategy strategy : {Strategy::kReplicated, Strategy::kGather, Strategy::kOwner,
                              Strategy::kNodeLocal, Strategy::kLayerwise}) {
      std::vector<PlanMatrix> matrices;
      for (GradientKind gradient : {GradientKind::kLocal, GradientKind::kReduced}) {
        for (RuleKind rule : {RuleKind::kMuon, RuleKind::kCustom, RuleKind::kElementwise}) {
          const Layout layout =
              strategy == Strategy::kReplicated ? Layout::kReplicated : Layout::kSharded;
          matrices.push_back(
              Matrix("a" + std::to_string(matrices.size()), 70, 3, layout, gradient, rule));
          matrices.push_back(Matrix("b" + std::to_string(matrices.size()), 9, 3,
                                    Layout::kReplicated, gradient, rule));
          if (strategy == Strategy::kReplicated || strategy == Strategy::kLayerwise) continue;
          matrices.push_back(Matrix("c" + std::to_string(matrices.size()), 35, 2,
                                    Layout::kNodeSharded, gradient, rule));
        }
      }
      PlanRequest request = Request(strategy, nodes, locals, matrices);
      request.limits.exchange_bytes = 1 << 20;
      const absl::StatusOr<Plan> plan = BuildPlan(request);
      ASSERT_EQ(plan.status(), absl::OkStatus());
      EXPECT_EQ(Simulate(*plan, 2, Seed()), "");
    }
  }
}

RC_GTEST_PROP(PlanLaw, EqualRequestsGiveEqualPlansAndTheyAreValid, ()) {
  const PlanRequest request = DrawRequest({});
  const Plan plan = Build(request);
  RC_ASSERT(Fingerprint(plan) == Fingerprint(Build(request)));
  RC_ASSERT(ValidatePlan(plan) == absl::OkStatus());
}

RC_GTEST_PROP(PlanLaw, MembersOfACommunicatorHaveOneSequenceOnOneLane, ()) {
  const Plan plan = Build(DrawRequest({}));
  std::map<std::pair<int, int>, std::set<std::vector<int>>> sequences;  // by group and part
  std::map<int, std::set<int>> lanes_of;
  for (int rank = 0; rank < static_cast<int>(plan.lanes.size()); ++rank) {
    std::map<int, std::vector<int>> mine;
    for (int lane = 0; lane < kLaneCount; ++lane) {
      for (int index : plan.lanes[rank][lane]) {
        const Op& op = plan.ops[index];
        if (op.kind > OpKind::kVerdict) continue;
        mine[op.group].push_back(index);
        lanes_of[op.group].insert(lane);
      }
    }
    for (const auto& [group, sequence] : mine) {
      sequences[{group, plan.groups[group].PartOf(rank)}].insert(sequence);
    }
  }
  for (const auto& [part, all] : sequences) RC_ASSERT(all.size() == 1u);
  for (const auto& [group, lanes] : lanes_of) RC_ASSERT(lanes.size() == 1u);
  for (const Op& op : plan.ops) {
    if (op.kind > OpKind::kVerdict || plan.lanes.size() == 1) continue;
    for (const auto& part : plan.groups[op.group].parts) RC_ASSERT(part.size() > 1u);
  }
}

RC_GTEST_PROP(PlanLaw, AWorldOfOneHasNoCollectiveButItsVerdict, ()) {
  DrawLimits limits;
  limits.most_nodes = limits.most_ranks_per_node = 1;
  const Plan plan = Build(DrawRequest(limits));
  int verdicts = 0;
  for (const Op& op : plan.ops) {
    RC_ASSERT(op.lane == (op.kind == OpKind::kUse ? Lane::kCaller : Lane::kCompute));
    verdicts += op.kind == OpKind::kVerdict;
    RC_ASSERT(op.kind >= OpKind::kVerdict);
  }
  RC_ASSERT(verdicts == 1);
}

RC_GTEST_PROP(PlanLaw, EveryMatrixIsUpdatedOnceByItsOwnersOrByEveryRank, ()) {
  const PlanRequest request = DrawRequest({});
  const Plan plan = Build(request);
  for (std::size_t rank = 0; rank < plan.lanes.size(); ++rank) {
    std::map<std::pair<int, OpKind>, int> runs;
    for (int index : plan.lanes[rank][static_cast<int>(Lane::kCompute)]) {
      for (int m : MatricesOf(plan, plan.ops[index])) ++runs[{m, plan.ops[index].kind}];
    }
    for (std::size_t m = 0; m < plan.matrices.size(); ++m) {
      const PlanMatrix& matrix = plan.matrices[m];
      const bool elementwise = matrix.rule == RuleKind::kElementwise;
      RC_ASSERT((matrix.owner >= 0) == GetsOwner(request, matrix));
      const int here = RunsRule(plan, matrix, static_cast<int>(rank)) ? 1 : 0;
      const auto count = [&](OpKind kind) { return runs[{static_cast<int>(m), kind}]; };
      RC_ASSERT(count(OpKind::kMomentum) == (matrix.rule == RuleKind::kMuon ? here : 0));
      const bool at_owner = StateOnShards(plan, matrix);  // and nowhere else
      const int ns_here = at_owner ? matrix.owner == static_cast<int>(rank) : here;
      RC_ASSERT(count(OpKind::kOrthogonalize) == (matrix.rule == RuleKind::kMuon ? ns_here : 0));
      RC_ASSERT(count(OpKind::kRowNorm) + count(OpKind::kRowNormBySquares) ==
                (matrix.period > 1 ? here : 0));
      RC_ASSERT(count(OpKind::kCustom) == (matrix.rule == RuleKind::kCustom ? here : 0));
      RC_ASSERT(count(OpKind::kElementwise) == (elementwise ? here : 0));
    }
  }
}

RC_GTEST_PROP(PlanLaw, NoMatrixTakesPartInMoreThanTwoCollectivesEachWayPerRank, ()) {
  const Plan plan = Build(DrawRequest({}));
  for (const auto& lanes : plan.lanes) {
    // By matrix, and its pass or -1 for what is gathered and the sums of a periodic one.
    std::map<std::pair<int, int>, int> before, after;
    for (const auto& lane : lanes) {
      for (int index : lane) {
        const Op& op = plan.ops[index];
        if (op.kind >= OpKind::kVerdict || op.piece > 0) continue;
        for (int m : MatricesOf(plan, op)) {
          if (plan.matrices[m].rule == RuleKind::kCustom) continue;
          if (op.trigger == Trigger::kNeeded) continue;  // one for each pass
          if (op.when == When::kBetween) {
            RC_ASSERT(op.source == Slot::kNormSquares);
            continue;
          }
          const int pass = op.when == When::kAlways ? op.pass : -1;
          ++(op.stage <= Stage::kOrthogonalized ? before : after)[{m, pass}];
        }
      }
    }
    for (const auto& [key, count] : before) {
      const PlanMatrix& matrix = plan.matrices[key.first];
      // Reduce-scatter, all-reduce and all-gather.
      const bool gathers = matrix.layout == Layout::kNodeSharded && matrix.owner < 0;
      RC_ASSERT(count <= (gathers ? 3 : 2));
    }
    for (const auto& [matrix, count] : after) RC_ASSERT(count <= 2);
  }
}

RC_GTEST_PROP(PlanLaw, EveryRanksLocalGradientIsReducedOnceInEachPassWhereThatIsAsked, ()) {
  const Plan plan = Build(DrawRequest({}));
  const int last = plan.limits.passes - 1;
  for (int rank = 0; rank < static_cast<int>(plan.lanes.size()); ++rank) {
    // By matrix, the passes whose gradients are reduced and added, in plan order.
    std::map<int, std::vector<int>> reduced, added;
    for (const auto& lane : plan.lanes[rank]) {
      for (int index : lane) {
        const Op& op = plan.ops[index];
        for (int m : MatricesOf(plan, op)) {
          const bool reads = op.source == Slot::kGradient && op.kind < OpKind::kVerdict;
          if (reads && op.piece == 0) reduced[m].push_back(op.pass);
          if (op.kind == OpKind::kAccumulate) added[m].push_back(op.pass);
          if (op.kind == OpKind::kCheckGradient && plan.limits.reduce_each_pass) {
            RC_ASSERT(op.pass == last);
          }
        }
      }
    }
    for (int m = 0; m < static_cast<int>(plan.matrices.size()); ++m) {
      const PlanMatrix& matrix = plan.matrices[m];
      if (matrix.gradient == GradientKind::kReduced || plan.lanes.size() == 1) {
        RC_ASSERT(added[m].empty());
        continue;
      }
      std::vector<int> passes = {0};
      for (int p = 1; plan.limits.reduce_each_pass && p <= last; ++p) passes.push_back(p);
      RC_ASSERT(reduced[m] == passes);
      passes.erase(passes.begin());
      if (!RunsRule(plan, matrix, rank)) passes.clear();
      RC_ASSERT(added[m] == passes);
    }
  }
}

RC_GTEST_PROP(PlanLaw, WithOnePassReducingEachChangesNothing, ()) {
  PlanRequest request = DrawRequest({});
  request.limits.passes = 1;
  request.limits.reduce_each_pass = true;
  Plan each = Build(request);
  request.limits.reduce_each_pass = each.limits.reduce_each_pass = false;
  RC_ASSERT(Fingerprint(each) == Fingerprint(Build(request)));
}

// Slots that a rank's ops touch, by the documented meaning of each kind of op.
std::set<std::pair<int, Slot>> TouchedSlots(const Plan& plan, int rank) {
  std::set<std::pair<int, Slot>> touched;
  for (const auto& lane : plan.lanes[rank]) {
    for (int index : lane) {
      const Op& op = plan.ops[index];
      if (op.kind == OpKind::kVerdict) continue;
      const Group& group = plan.groups[op.group];
      const bool exchange =
          op.set >= 0 && op.kind < OpKind::kVerdict && plan.matrices[op.matrix].exchange == op.set;
      const bool sends_all = op.kind != OpKind::kBroadcast && op.kind != OpKind::kScatter &&
                             !(exchange && op.kind == OpKind::kAllGather);
      const bool all_receive = op.kind != OpKind::kReduce && op.kind != OpKind::kGather &&
                               !(exchange && op.kind == OpKind::kReduceScatter);
      for (int m : MatricesOf(plan, op)) {
        const bool root = exchange
                              ? plan.matrices[m].owner == rank
                              : op.root >= 0 && group.parts[group.PartOf(rank)][op.root] == rank;
        if (sends_all || root) touched.insert({m, op.source});
        if (op.kind == OpKind::kRowNormBySquares) touched.insert({m, Slot::kNormSquares});
        if (op.target == Slot::kNone) continue;
        if (all_receive || root) touched.insert({m, op.target});
      }
    }
  }
  return touched;
}

RC_GTEST_PROP(PlanLaw, SlotsHaveRowsExactlyWhereTheyAreTouchedAndCostCountsThem, ()) {
  const Plan plan = Build(DrawRequest({3, 3, 12, 40}));
  for (int rank = 0; rank < static_cast<int>(plan.lanes.size()); ++rank) {
    const auto touched = TouchedSlots(plan, rank);
    // Of each buffer, what its occupants need; those of a set lie side by side.
    std::map<int, std::map<int, std::int64_t>> needed;
    for (int m = 0; m < static_cast<int>(plan.matrices.size()); ++m) {
      const PlanMatrix& matrix = plan.matrices[m];
      const bool sharded = InShards(matrix.layout);
      const std::int64_t shard = sharded ? ShardRows(matrix, rank) : 0;
      for (int s = 0; s < kSlotCount; ++s) {
        const Slot slot = static_cast<Slot>(s);
        const std::int64_t rows = SlotRows(plan, m, slot, rank);
        RC_ASSERT(rows >= 0 && rows <= matrix.rows);
        if (rows > 0) RC_ASSERT(touched.count({m, slot}) == 1u);
        const bool may_be_empty =
            matrix.rows == 0 ||
            (sharded &&
             (shard == 0 || slot == Slot::kNodeGradient || slot == Slot::kNodeDirection ||
              slot == Slot::kNodeWeight || slot == Slot::kNodeUpdate));
        if (touched.count({m, slot}) == 1 && !may_be_empty) RC_ASSERT(rows > 0);
        if (slot == Slot::kWeight) {
          RC_ASSERT(rows == (sharded ? shard : matrix.rows));
        }
        const bool fetched = matrix.layout == Layout::kOwned && matrix.owner != rank;
        if (slot != Slot::kWeight || fetched) {
          const bool batched = slot == Slot::kUpdate || slot == Slot::kDirection;
          const bool reduced = slot == Slot::kGradient || slot == Slot::kReducedGradient ||
                               slot == Slot::kPassGradient;
          const bool exchanged = reduced && matrix.exchange >= 0;
          const int set = slot == Slot::kNormSquares ? matrix.norm_set
                          : batched                  ? matrix.batch
                          : exchanged                ? matrix.exchange
                                                     : matrix.bucket;
          needed[matrix.buffers[s]][set >= 0 ? set : -1 - m] +=
              rows * matrix.cols * static_cast<std::int64_t>(SizeOf(SlotType(matrix, slot)));
        }
      }
    }
    std::int64_t bytes = 0;
    for (std::int64_t scratch : BuffersOfRank(plan, rank).scratch) bytes += scratch;
    for (const auto& [buffer, occupants] : needed) {
      std::int64_t most = 0;
      for (const auto& [occupant, size] : occupants) most = std::max(most, size);
      bytes += most;
    }
    RC_ASSERT(CostOfRank(plan, rank).buffer_bytes == bytes);
    RC_ASSERT(bytes <= plan.limits.buffer_bytes);
  }
}

RC_GTEST_PROP(PlanLaw, StatesAreHeldOnceByOwnersAndByShards, ()) {
  const PlanRequest request = DrawRequest({});
  const Plan plan = Build(request);
  if (OwnersEach(request) == 0) return;
  std::int64_t held = 0, needed = 0;
  int owned = 0;
  for (int rank = 0; rank < static_cast<int>(plan.lanes.size()); ++rank) {
    held += CostOfRank(plan, rank).state_bytes;
    owned += CostOfRank(plan, rank).owned;
  }
  int with_owner = 0;
  for (const PlanMatrix& matrix : plan.matrices) {
    const bool elementwise = matrix.rule == RuleKind::kElementwise;
    const bool in_shards = InShards(matrix.layout) && matrix.rule != RuleKind::kCustom;
    const bool everywhere =
        matrix.pass_through ? !in_shards : elementwise && matrix.layout == Layout::kReplicated;
    const bool with_owners = GetsOwner(request, matrix);
    const int replicas = matrix.layout == Layout::kNodeSharded ? request.topology.grid.nodes : 1;
    const int copies = everywhere ? static_cast<int>(plan.lanes.size())
                       : with_owners && !StateOnShards(plan, matrix) ? OwnersEach(request)
                                                                     : replicas;
    needed += matrix.rows * matrix.cols * matrix.state_bytes_per_element * copies;
    with_owner += with_owners ? OwnersEach(request) : 0;
  }
  RC_ASSERT(held == needed);
  RC_ASSERT(owned == with_owner);
}

// Mutations of a plan; false when the drawn one does not apply.
bool Mutate(Plan& plan) {
  const int rank = *Evenly(0, static_cast<int>(plan.lanes.size()));
  auto& lane = plan.lanes[rank][*Evenly(0, kLaneCount)];
  Op& op = plan.ops[*Evenly<std::size_t>(0, plan.ops.size())];
  const auto place = [&](std::size_t size) { return *Evenly<std::size_t>(0, size); };
  switch (*Evenly(0, 9)) {
    case 0:
      if (lane.size() < 2) return false;
      std::swap(lane[place(lane.size())], lane[place(lane.size())]);
      return true;
    case 1:
      if (lane.empty()) return false;
      lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(place(lane.size())));
      return true;
    case 2:
      if (lane.empty()) return false;
      lane.push_back(lane[place(lane.size())]);
      return true;
    case 3:
      if (op.after.empty()) return false;
      op.after.erase(op.after.begin() + static_cast<std::ptrdiff_t>(place(op.after.size())));
      return true;
    case 4:
      if (op.after_previous.empty()) return false;
      op.after_previous.erase(op.after_previous.begin() +
                              static_cast<std::ptrdiff_t>(place(op.after_previous.size())));
      return true;
    case 5:
      op.root = *Evenly(-1, static_cast<int>(plan.lanes.size()) + 1);
      return true;
    case 6:
      op.source = static_cast<Slot>(*Evenly(0, kSlotCount));
      return true;
    case 7:
      op.target = static_cast<Slot>(*Evenly(0, kSlotCount));
      return true;
    default:
      op.after.push_back(*Evenly(0, static_cast<int>(plan.ops.size())));
      return true;
  }
}

RC_GTEST_PROP(PlanLaw, WhatTheValidatorAcceptsRunsCorrectlyEvenAfterMutations, ()) {
  Plan plan = Build(DrawRequest({3, 3, 6, 12}));
  if (!Mutate(plan)) return;
  const bool accepted = ValidatePlan(plan).ok();
  RC_CLASSIFY(accepted, "accepted");
  if (!accepted) return;
  for (int run = 0; run < 5; ++run) RC_ASSERT(Simulate(plan, 2, DrawSeed()) == "");
}

}  // namespace
}  // namespace weft::testing
