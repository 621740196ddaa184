// The ways of matrices to and from their owners, level by level; of matrices with replicas between
// the owner and its node, and between each rank of that and its replicas. In groups of two,
// collectives with opposite roots run as one: whoever comes first waits for the other.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/access.h"
#include "scheduler/plan_builder.h"

namespace weft::scheduler {
namespace {

// Of one group, for one thing. More waiting would hold buffers, and keep back what could travel.
constexpr int kMostWaiting = 2;
// In that many rounds of owners an opposite should have come.
constexpr int kPatience = 2;

bool SameWay(const Op& a, const Op& b) {
  return a.group == b.group && a.kind == b.kind && a.trigger == b.trigger && a.use == b.use;
}

// A pair takes as long as the larger of the two: of very unequal ones little would be gained.
bool AlikeInSize(const Op& a, const Op& b) {
  return 2 * std::min(a.bytes, b.bytes) >= std::max(a.bytes, b.bytes);
}

}  // namespace

PlanBuilder::Wire PlanBuilder::WireOf(OpKind kind, std::int32_t m, Lane level) {
  const int owner = matrix(m).owner;
  const std::int64_t rows = matrix(m).rows;
  if (!two_level()) return {kind, World(), world_lane_, owner, rows};
  const int local = LocalRankOfOwner(m);
  if (level == Lane::kInter) {
    const int root = IsRooted(kind) ? grid().node_of(owner) : -1;
    return {kind, Inter(local), level, root, rows};
  }
  const bool cut = kind == OpKind::kGather || kind == OpKind::kScatter;
  return {kind, Intra(), level, local, cut ? MostNodeRows(m) : rows};
}

PlanBuilder::Wire PlanBuilder::WireInOwnersNode(OpKind kind, std::int32_t m) {
  const std::int32_t group = OnEachNode(m) ? Intra() : Node(grid().node_of(matrix(m).owner));
  return {kind, group, Lane::kIntra, LocalRankOfOwner(m), matrix(m).rows};
}

PlanBuilder::Wire PlanBuilder::WireOfReplicas(OpKind kind, std::int32_t m) {
  const int root = IsRooted(kind) ? grid().node_of(matrix(m).owner) : -1;
  return {kind, Replicas(), Lane::kInter, root, MostShardRows(m)};
}

void PlanBuilder::ToOwner(OpKind kind, std::int32_t m, Place place, Slot source, Slot node,
                          Slot target) {
  Journey journey{.m = m};
  if (kind == OpKind::kGather && HasReplicas(matrix(m))) {
    if (source == Slot::kGradient && matrix(m).gradient == GradientKind::kReplica) {
      journey.between = node;
      const OpKind sum = OnEachNode(m) ? OpKind::kAllReduce : OpKind::kReduce;
      journey.legs.push_back(Make(WireOfReplicas(sum, m), m, place, {source, node}));
      source = node;
    }
    journey.legs.push_back(Make(WireInOwnersNode(kind, m), m, place, {source, target}));
    if (target == Slot::kPassGradient) journey.legs.push_back(MakeAccumulate(m));
    return Begin(std::move(journey));
  }
  if (two_level()) {
    journey.between = node;
    journey.legs.push_back(Make(WireOf(kind, m, Lane::kIntra), m, place, {source, node}));
    source = node;
  }
  const OpKind to_all = kind == OpKind::kReduce ? OpKind::kAllReduce : OpKind::kAllGather;
  const OpKind last = OnEachNode(m) ? to_all : kind;
  journey.legs.push_back(Make(WireOf(last, m, Lane::kInter), m, place, {source, target}));
  if (target == Slot::kPassGradient) journey.legs.push_back(MakeAccumulate(m));
  Begin(std::move(journey));
}

void PlanBuilder::FromOwner(OpKind kind, std::int32_t m, Stage on_node, Stage on_rank, Slot source,
                            Slot node, Slot target, When when) {
  Journey journey{.m = m};
  const auto place = [&](Stage stage) { return Place{.stage = stage, .when = when}; };
  if (HasReplicas(matrix(m))) {
    // Each rank of the owner's node sends its rows to its replicas, all of them side by side.
    journey.legs.push_back(Make(WireInOwnersNode(kind, m), m, place(on_rank), {source, target}));
    if (!OnEachNode(m)) {
      journey.legs.push_back(
          Make(WireOfReplicas(OpKind::kBroadcast, m), m, place(on_rank), {target, target}));
    }
    return Begin(std::move(journey));
  }
  if (two_level() && !OnEachNode(m)) {
    if (node != target) journey.between = node;
    journey.legs.push_back(Make(WireOf(kind, m, Lane::kInter), m, place(on_node), {source, node}));
    source = node;
  }
  journey.legs.push_back(Make(WireOf(kind, m, Lane::kIntra), m, place(on_rank), {source, target}));
  Begin(std::move(journey));
}

void PlanBuilder::Fetch(std::int32_t m, Lane level, std::int32_t use) {
  if (alone() || (!two_level() && level == Lane::kIntra)) return;
  Begin({m,
         {Make(WireOf(OpKind::kBroadcast, m, level), m, {Stage::kSubmitted, Trigger::kNeeded, use},
               {Slot::kWeight, Slot::kWeight})}});
}

bool PlanBuilder::MayPair(const Op& op) const {
  const std::int64_t least = forms_.pair_from[static_cast<std::size_t>(ClassOf(op))];
  return IsRooted(op.kind) && least >= 0 && op.bytes >= least &&
         plan_.groups[op.group].parts[0].size() == 2 && op.form == CollectiveForm::kDirect &&
         op.pieces == 1;
}

// Among those whose owners have a local rank in common; of replicas, a node.
int PlanBuilder::NodeRing(std::int32_t m) const {
  const bool replicas = HasReplicas(matrix(m)) && matrix(m).gradient == GradientKind::kReplica;
  if (!replicas) return LocalRankOfOwner(m);
  return grid().ranks_per_node + (OnEachNode(m) ? 0 : grid().node_of(matrix(m).owner));
}

// Whoever had the buffer before, and still waits to pass on what lies in it, goes first.
void PlanBuilder::TakeNodeTurn(const Journey& journey) {
  if (journey.between == Slot::kNone) return;
  TakeTurn(journey.m, journey.between, NodeRing(journey.m), plan_.limits.buffers_in_turn);
  const auto buffer_of = [&](std::int32_t m) {
    return matrix(m).buffers[static_cast<std::size_t>(journey.between)];
  };
  for (;;) {
    const auto before = std::find_if(waiting_.begin(), waiting_.end(), [&](const Journey& other) {
      return other.between == journey.between && buffer_of(other.m) == buffer_of(journey.m);
    });
    if (before == waiting_.end()) return;
    EmitWaiting(before);
  }
}

void PlanBuilder::EmitLeg(Journey& journey) {
  TakeNodeTurn(journey);
  Push(std::move(journey.legs[journey.next++]));
}

void PlanBuilder::Begin(Journey journey) {
  journey.began = ++begun_;
  const auto too_long = [&](const Journey& other) {
    return begun_ - other.began > kPatience * static_cast<std::int64_t>(grid().size());
  };
  for (;;) {
    const auto late = std::find_if(waiting_.begin(), waiting_.end(), too_long);
    if (late == waiting_.end()) break;
    EmitWaiting(late);
  }
  GoOn(std::move(journey));
}

// One leg after the other, as far as nothing has to be waited for.
void PlanBuilder::GoOn(Journey journey) {
  for (;;) {
    if (journey.next == journey.legs.size()) return;
    const Op& op = journey.legs[journey.next];
    if (!MayPair(op)) {
      EmitLeg(journey);
      continue;
    }
    const auto same_way = [&](const Journey& other) {
      const Op& theirs = other.legs[other.next];
      return SameWay(theirs, op) && SameSteps(plan_, theirs, op);
    };
    // Taking a turn may send others on their way.
    TakeNodeTurn(journey);
    const auto opposite = std::find_if(waiting_.begin(), waiting_.end(), [&](const Journey& other) {
      const Op& theirs = other.legs[other.next];
      return same_way(other) && theirs.root != op.root && AlikeInSize(theirs, op);
    });
    if (opposite != waiting_.end()) {
      Journey other = std::move(*opposite);
      waiting_.erase(opposite);
      EmitLeg(other);
      plan_.ops.back().with_next = true;
      EmitLeg(journey);
      GoOn(std::move(other));
      continue;
    }
    const auto oldest = std::find_if(waiting_.begin(), waiting_.end(), same_way);
    const bool crowded = std::count_if(waiting_.begin(), waiting_.end(), same_way) >= kMostWaiting;
    if (crowded) EmitWaiting(oldest);
    waiting_.push_back(std::move(journey));
    return;
  }
}

void PlanBuilder::EmitWaiting(std::vector<Journey>::iterator which) {
  Journey journey = std::move(*which);
  waiting_.erase(which);
  EmitLeg(journey);
  GoOn(std::move(journey));
}

void PlanBuilder::EmitWaiting(Trigger trigger) {
  for (;;) {
    const auto first = std::find_if(waiting_.begin(), waiting_.end(), [&](const Journey& journey) {
      return journey.legs[journey.next].trigger == trigger;
    });
    if (first == waiting_.end()) return;
    EmitWaiting(first);
  }
}

}  // namespace weft::scheduler
