#include "scheduler/plan_builder.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace weft::scheduler {

PlanBuilder::PlanBuilder(Plan& plan)
    : plan_(plan),
      world_lane_(plan.topology.grid.size() == 1  ? Lane::kCompute
                  : plan.topology.grid.nodes == 1 ? Lane::kIntra
                                                  : Lane::kInter),
      intra_(grid().nodes, -1),
      inter_(grid().ranks_per_node, -1),
      rank_(grid().size(), -1) {}

std::int32_t PlanBuilder::Add(std::int32_t& index, std::string name, std::vector<int> ranks) {
  index = static_cast<std::int32_t>(plan_.groups.size());
  plan_.groups.push_back({std::move(name), std::move(ranks)});
  return index;
}

std::int32_t PlanBuilder::World() {
  return world_ >= 0 ? world_ : Add(world_, "world", grid().World());
}

std::int32_t PlanBuilder::Intra(int node) {
  std::int32_t& index = intra_[node];
  return index >= 0 ? index : Add(index, absl::StrCat("intra ", node), grid().Intra(node));
}

std::int32_t PlanBuilder::Inter(int local) {
  std::int32_t& index = inter_[local];
  return index >= 0 ? index : Add(index, absl::StrCat("inter ", local), grid().Inter(local));
}

std::int32_t PlanBuilder::Rank(int rank) {
  if (alone()) return World();
  std::int32_t& index = rank_[rank];
  return index >= 0 ? index : Add(index, absl::StrCat("rank ", rank), {rank});
}

void PlanBuilder::Emit(const Wire& wire, std::int32_t m, Place place, Slots slots) {
  Op op{};
  op.kind = wire.kind;
  op.lane = wire.lane;
  op.stage = place.stage;
  op.trigger = place.trigger;
  op.source = slots.source;
  op.target = slots.target;
  op.matrix = m;
  op.group = wire.group;
  op.root = wire.root;
  op.bytes = wire.rows * matrix(m).cols *
             static_cast<std::int64_t>(SizeOf(SlotType(matrix(m), slots.source)));
  plan_.ops.push_back(std::move(op));
}

void PlanBuilder::OnWorld(OpKind kind, std::int32_t m, Place place, Slots slots, int root) {
  Emit({kind, World(), world_lane_, root, matrix(m).rows}, m, place, slots);
}

void PlanBuilder::ToOwner(OpKind kind, std::int32_t m, Place place, Slot source, Slot node,
                          Slot target) {
  const int owner = matrix(m).owner;
  if (!two_level()) {
    OnWorld(kind, m, place, {source, target}, owner);
    return;
  }
  const int local = grid().local_of(owner);
  for (int n = 0; n < grid().nodes; ++n) {
    const std::int64_t rows =
        kind == OpKind::kGather ? NodeRows(grid(), matrix(m), n) : matrix(m).rows;
    Emit({kind, Intra(n), Lane::kIntra, grid().rank_of(n, local), rows}, m, place, {source, node});
  }
  Emit({kind, Inter(local), Lane::kInter, owner, matrix(m).rows}, m, place, {node, target});
}

void PlanBuilder::FromOwner(OpKind kind, std::int32_t m, Stage on_node, Stage on_rank, Slot source,
                            Slot node, Slot target) {
  const int owner = matrix(m).owner;
  if (!two_level()) {
    OnWorld(kind, m, {on_rank}, {source, target}, owner);
    return;
  }
  const int local = grid().local_of(owner);
  Emit({kind, Inter(local), Lane::kInter, owner, matrix(m).rows}, m, {on_node}, {source, node});
  for (int n = 0; n < grid().nodes; ++n) {
    const std::int64_t rows =
        kind == OpKind::kScatter ? NodeRows(grid(), matrix(m), n) : matrix(m).rows;
    Emit({kind, Intra(n), Lane::kIntra, grid().rank_of(n, local), rows}, m, {on_rank},
         {node, target});
  }
}

void PlanBuilder::Compute(OpKind kind, std::int32_t group, std::int32_t m, Stage stage, Slots slots,
                          double flops) {
  Emit({kind, group, Lane::kCompute, -1, 0}, m, {stage}, slots);
  plan_.ops.back().flops = flops;
}

void PlanBuilder::CheckGradient(std::int32_t group, std::int32_t m, Slot slot) {
  Emit({OpKind::kCheckGradient, group, Lane::kCompute, -1, 0}, m,
       {Stage::kReduced, Trigger::kSubmitted}, {slot, Slot::kNone});
}

void PlanBuilder::Verdict() {
  Op op{};
  op.kind = OpKind::kVerdict;
  op.lane = world_lane_;
  op.stage = Stage::kReduced;
  op.trigger = Trigger::kStepClosed;
  op.group = World();
  op.bytes = 4 * VerdictFloats(plan_.matrices.size(), grid().size());
  plan_.ops.push_back(std::move(op));
}

void PlanBuilder::Finish() {
  plan_.lanes.assign(grid().size(), {});
  for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
    const Op& op = plan_.ops[i];
    for (int rank : plan_.groups[op.group].ranks) {
      plan_.lanes[rank][static_cast<int>(op.lane)].push_back(static_cast<std::int32_t>(i));
    }
  }
}

}  // namespace weft::scheduler
