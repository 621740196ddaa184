#include "scheduler/plan_builder.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/buffers.h"

namespace weft::scheduler {

PlanBuilder::PlanBuilder(Plan& plan, const FormChoices& forms)
    : plan_(plan),
      forms_(forms),
      world_lane_(plan.topology.grid.size() == 1  ? Lane::kCompute
                  : plan.topology.grid.nodes == 1 ? Lane::kIntra
                                                  : Lane::kInter),
      node_(grid().nodes, -1),
      inter_(grid().ranks_per_node, -1),
      rank_(grid().size(), -1),
      all_but_(grid().size(), -1),
      all_but_inter_(grid().ranks_per_node, -1) {
  for (PlanMatrix& matrix : plan_.matrices) matrix.buffers.fill(-1);
}

std::int32_t PlanBuilder::Add(std::int32_t& index, std::string name,
                              std::vector<std::vector<int>> parts) {
  index = static_cast<std::int32_t>(plan_.groups.size());
  plan_.groups.push_back({std::move(name), std::move(parts)});
  return index;
}

std::int32_t PlanBuilder::World() {
  return world_ >= 0 ? world_ : Add(world_, "world", {grid().World()});
}

std::int32_t PlanBuilder::Intra() {
  if (intra_ >= 0) return intra_;
  std::vector<std::vector<int>> nodes;
  nodes.reserve(grid().nodes);
  for (int node = 0; node < grid().nodes; ++node) nodes.push_back(grid().Intra(node));
  return Add(intra_, "intra", std::move(nodes));
}

std::int32_t PlanBuilder::Node(int node) {
  std::int32_t& index = node_[node];
  return index >= 0 ? index : Add(index, absl::StrCat("node ", node), {grid().Intra(node)});
}

std::int32_t PlanBuilder::Replicas() {
  if (replicas_ >= 0) return replicas_;
  std::vector<std::vector<int>> replicas;
  replicas.reserve(grid().ranks_per_node);
  for (int local = 0; local < grid().ranks_per_node; ++local) {
    replicas.push_back(grid().Inter(local));
  }
  return Add(replicas_, "replicas", std::move(replicas));
}

std::int32_t PlanBuilder::Inter(int local) {
  std::int32_t& index = inter_[local];
  return index >= 0 ? index : Add(index, absl::StrCat("inter ", local), {grid().Inter(local)});
}

std::int32_t PlanBuilder::Rank(int rank) {
  if (alone()) return World();
  std::int32_t& index = rank_[rank];
  return index >= 0 ? index : Add(index, absl::StrCat("rank ", rank), {{rank}});
}

std::int32_t PlanBuilder::Runners(std::int32_t m) {
  const int owner = matrix(m).owner;
  if (owner < 0 || OnShards(m)) return World();
  return OnEachNode(m) ? Inter(grid().local_of(owner)) : Rank(owner);
}

std::int32_t PlanBuilder::AllButRunners(std::int32_t m) {
  const int owner = matrix(m).owner;
  const int local = grid().local_of(owner);
  const bool each = OnEachNode(m);
  std::int32_t& index = each ? all_but_inter_[local] : all_but_[owner];
  if (index >= 0) return index;
  std::vector<int> others = grid().World();
  std::erase_if(others,
                [&](int rank) { return each ? grid().local_of(rank) == local : rank == owner; });
  return Add(index,
             each ? absl::StrCat("all but inter ", local) : absl::StrCat("all but rank ", owner),
             {std::move(others)});
}

std::int32_t PlanBuilder::AnyOwner(std::int32_t m) {
  const int owner = matrix(m).owner;
  if (!OnEachNode(m)) return Rank(owner);
  return Rank(grid().rank_of(m % grid().nodes, grid().local_of(owner)));
}

std::int64_t PlanBuilder::MostNodeRows(std::int32_t m) const {
  std::int64_t most = 0;
  for (int node = 0; node < grid().nodes; ++node) {
    most = std::max(most, NodeRows(grid(), matrix(m), node));
  }
  return most;
}

std::int64_t PlanBuilder::MostShardRows(std::int32_t m) const {
  const std::vector<std::int64_t>& rows = matrix(m).shard_rows;
  return *std::max_element(rows.begin(), rows.end());
}

std::int32_t PlanBuilder::HoldersOfShards(std::int32_t m) {
  return HasReplicas(matrix(m)) ? Node(m % grid().nodes) : World();
}

Op PlanBuilder::Make(const Wire& wire, std::int32_t m, Place place, Slots slots) const {
  Op op{};
  op.kind = wire.kind;
  op.lane = wire.lane;
  op.stage = place.stage;
  op.trigger = place.trigger;
  op.when = place.when;
  op.source = slots.source;
  op.target = slots.target;
  op.matrix = m;
  op.set = SetOf(matrix(m), wire.kind, slots.target);
  op.group = wire.group;
  op.root = wire.root;
  for (std::int32_t each : MatricesOf(plan_, op)) {
    const std::int64_t rows = op.set < 0              ? wire.rows
                              : IsCollective(op.kind) ? WholeRows(matrix(each), slots.source)
                                                      : 0;
    op.bytes += rows * matrix(each).cols *
                static_cast<std::int64_t>(SizeOf(SlotType(matrix(each), slots.source)));
  }
  op.use = place.use;
  if (op.trigger == Trigger::kSubmitted) op.pass = pass_;
  op.form = FormOf(op);
  op.pieces = PiecesOf(op);
  return op;
}

Op& PlanBuilder::Push(Op op) {
  if (op.pieces > 1) {
    const auto width = static_cast<std::int64_t>(SizeOf(SlotType(matrix(op.matrix), op.source)));
    const std::int64_t elements = op.bytes / width;
    for (op.piece = 0; op.piece + 1 < op.pieces; ++op.piece) {
      plan_.ops.push_back(op);
      plan_.ops.back().bytes = PieceOf(elements, op).count * width;
    }
    op.bytes = PieceOf(elements, op).count * width;
  }
  plan_.ops.push_back(std::move(op));
  return plan_.ops.back();
}

std::int32_t PlanBuilder::PiecesOf(const Op& op) const {
  const std::int64_t most = plan_.limits.piece_bytes;
  const bool whole =
      op.kind == OpKind::kReduce || op.kind == OpKind::kBroadcast || op.kind == OpKind::kAllReduce;
  if (most == 0 || !whole || op.form == CollectiveForm::kSplit || op.bytes <= most) return 1;
  constexpr std::int64_t kMostPieces = 1024;
  return static_cast<std::int32_t>(std::min((op.bytes - 1) / most + 1, kMostPieces));
}

void PlanBuilder::Interleave(std::size_t first) {
  const bool cut = std::any_of(plan_.ops.begin() + static_cast<std::ptrdiff_t>(first),
                               plan_.ops.end(), [](const Op& op) { return op.pieces > 1; });
  if (!cut) return;
  struct Turn {
    std::int64_t turn;
    std::size_t op;
  };
  std::vector<Turn> places;
  std::map<std::int32_t, std::int64_t> over;  // by matrix: the turn behind its last piece
  std::array<std::int64_t, kLaneCount> next = {};
  // Scatters use buffers in turn, and are never cut: they stay in their order on both lanes.
  std::int64_t scattered = 0;
  for (std::size_t i = first; i < plan_.ops.size(); ++i) {
    const Op& op = plan_.ops[i];
    std::int64_t turn = op.piece > 0 ? 0 : next[static_cast<std::size_t>(op.lane)]++;
    turn = std::max(turn, over[op.matrix]);
    if (op.with_next) turn = std::max(turn, over[plan_.ops[i + 1].matrix]);
    if (op.kind == OpKind::kScatter) scattered = turn = std::max(turn, scattered);
    places.push_back({turn, i});
    over[op.matrix] = turn + 1;
    if (!op.with_next) continue;
    const std::int32_t other = plan_.ops[++i].matrix;
    places.push_back({turn, i});
    over[other] = turn + 1;
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Turn& a, const Turn& b) { return a.turn < b.turn; });
  std::vector<Op> ops;
  ops.reserve(places.size());
  for (const Turn& place : places) ops.push_back(std::move(plan_.ops[place.op]));
  std::move(ops.begin(), ops.end(), plan_.ops.begin() + static_cast<std::ptrdiff_t>(first));
}

GroupClass PlanBuilder::ClassOf(const Op& op) const {
  return op.group == world_        ? GroupClass::kWorld
         : op.lane == Lane::kIntra ? GroupClass::kIntra
                                   : GroupClass::kInter;
}

CollectiveForm PlanBuilder::FormOf(const Op& op) const {
  const bool reduce = op.kind == OpKind::kReduce;
  if (!reduce && op.kind != OpKind::kBroadcast) return CollectiveForm::kDirect;
  const auto& from = reduce ? forms_.reduce_split_from : forms_.broadcast_split_from;
  const std::int64_t least = from[static_cast<std::size_t>(ClassOf(op))];
  return least >= 0 && op.bytes >= least ? CollectiveForm::kSplit : CollectiveForm::kDirect;
}

void PlanBuilder::OnWorld(OpKind kind, std::int32_t m, Place place, Slots slots, int root) {
  Emit({kind, World(), world_lane_, root, WholeRows(matrix(m), slots.source)}, m, place, slots);
  if (slots.target == Slot::kPassGradient) Push(MakeAccumulate(m));
}

void PlanBuilder::OverShards(OpKind kind, std::int32_t m, Place place, Slots slots) {
  if (!HasReplicas(matrix(m))) return OnWorld(kind, m, place, slots);
  Emit({kind, Intra(), Lane::kIntra, -1, WholeRows(matrix(m), slots.source)}, m, place, slots);
}

void PlanBuilder::ReduceToShards(std::int32_t m) {
  if (matrix(m).gradient == GradientKind::kReduced) return;
  const Place place = {Stage::kReduced, Trigger::kSubmitted};
  Slots slots = {Slot::kGradient, ReducedInto(m)};
  if (!HasReplicas(matrix(m))) return OnWorld(OpKind::kReduceScatter, m, place, slots);
  if (matrix(m).gradient == GradientKind::kLocal) {
    OverShards(OpKind::kReduceScatter, m, place, slots);
    slots.source = slots.target;
  }
  Emit(WireOfReplicas(OpKind::kAllReduce, m), m, place, slots);
  if (slots.target == Slot::kPassGradient) Push(MakeAccumulate(m));
}

void PlanBuilder::OnExchange(OpKind kind, std::int32_t m, Place place, Slots slots) {
  const std::int32_t set = matrix(m).exchange;
  Emit({kind, World(), world_lane_, -1, 0}, plan_.sets[set][0], place, slots);
  if (slots.target != Slot::kPassGradient) return;
  for (std::int32_t each : plan_.sets[set]) Push(MakeAccumulate(each));
}

bool PlanBuilder::CompletesExchange(std::int32_t m) {
  const std::int32_t set = matrix(m).exchange;
  std::size_t& come = come_[set];
  if (++come < plan_.sets[set].size()) return false;
  come = 0;
  return true;
}

void PlanBuilder::Use(std::int32_t m, std::int32_t use) {
  Emit({OpKind::kUse, World(), Lane::kCaller, -1, 0}, m, {Stage::kSubmitted, Trigger::kNeeded, use},
       {Slot::kWeight, Slot::kNone});
}

void PlanBuilder::FetchInto(std::int32_t m, std::int32_t buffer) {
  for (std::int32_t each : TravelsWith(m)) {
    plan_.matrices[each].buffers[static_cast<int>(Slot::kWeight)] = buffer;
  }
}

void PlanBuilder::Compute(OpKind kind, std::int32_t group, std::int32_t m, Place place, Slots slots,
                          double flops) {
  Emit({kind, group, Lane::kCompute, -1, 0}, m, place, slots).flops = flops;
}

double PlanBuilder::Flops(absl::Span<const std::int32_t> matrices) const {
  double sum = 0;
  for (std::int32_t m : matrices) sum += matrix(m).flops;
  return sum;
}

void PlanBuilder::MuonUpdate(std::int32_t group, absl::Span<const std::int32_t> unit, Slot gradient,
                             int ring, bool applies) {
  // What NS runs at a time: batches by their first, and single matrices.
  std::vector<std::int32_t> runs;
  for (std::int32_t lead : unit) {
    for (std::int32_t m : TravelsWith(lead)) {
      const std::int32_t batch = matrix(m).batch;
      if (batch < 0 || plan_.sets[batch][0] == m) runs.push_back(m);
    }
  }
  // All of a bucket's updates are written before the first is used.
  const int places = static_cast<int>(runs.size());
  for (std::int32_t run : runs) {
    TakeTurn(run, Slot::kUpdate, ring, places);
    if (applies) TakeTurn(run, Slot::kDirection, ring, places);
  }
  for (std::int32_t lead : unit) {
    Compute(OpKind::kMomentum, group, lead, Stage::kOrthogonalized, {gradient, Slot::kUpdate});
  }
  for (std::int32_t run : runs) {
    const std::int32_t batch = matrix(run).batch;
    const Slots slots{Slot::kUpdate, Slot::kDirection};
    Compute(
        OpKind::kOrthogonalize, group, run,
        {.stage = Stage::kOrthogonalized, .when = WhenRefreshed(run)}, slots,
        Flops(batch >= 0 ? absl::MakeConstSpan(plan_.sets[batch]) : absl::MakeConstSpan(&run, 1)));
    if (!Periodic(run)) continue;
    Compute(OpKind::kRowNorm, group, run, {.stage = Stage::kOrthogonalized, .when = When::kBetween},
            slots);
  }
  for (std::int32_t lead : unit) {
    if (applies) {
      Compute(OpKind::kApply, group, lead, Stage::kApplied, {Slot::kDirection, Slot::kWeight});
    }
  }
}

void PlanBuilder::SumNormSquares(std::int32_t m) {
  const std::int32_t set = matrix(m).norm_set;
  if (matrix(m).norm_vectors == 0 || (set >= 0 && plan_.sets[set].back() != m)) return;
  const std::int32_t first = set < 0 ? m : plan_.sets[set][0];
  const Place between{.stage = Stage::kOrthogonalized, .when = When::kBetween};
  Compute(OpKind::kNormSquares, World(), first, between, {Slot::kUpdate, Slot::kNormSquares});
  OverShards(OpKind::kAllReduce, first, between, {Slot::kNormSquares, Slot::kNormSquares});
}

void PlanBuilder::RowNormOfShards(std::int32_t m) {
  const bool summed = matrix(m).norm_vectors > 0;
  Compute(summed ? OpKind::kRowNormBySquares : OpKind::kRowNorm, World(), m,
          {.stage = Stage::kOrthogonalized, .when = When::kBetween},
          {Slot::kUpdate, Slot::kShardDirection});
  Compute(OpKind::kApply, World(), m, {.stage = Stage::kApplied, .when = When::kBetween},
          {Slot::kShardDirection, Slot::kWeight});
}

void PlanBuilder::CheckGradient(std::int32_t group, std::int32_t m, Slot slot) {
  Emit({OpKind::kCheckGradient, group, Lane::kCompute, -1, 0}, m,
       {Stage::kReduced, Trigger::kSubmitted}, {slot, Slot::kNone});
}

Slot PlanBuilder::ReducedInto(std::int32_t m) {
  if (pass_ == 0 || ReducingPasses(plan_, matrix(m)) == 1) return Slot::kReducedGradient;
  const bool one = matrix(m).owner >= 0 && matrix(m).exchange < 0 && !OnShards(m);
  TakeTurn(m, Slot::kPassGradient, one ? matrix(m).owner : kEveryRank, buffers_in_turn());
  return Slot::kPassGradient;
}

Op PlanBuilder::MakeAccumulate(std::int32_t m) {
  return Make({OpKind::kAccumulate, Runners(m), Lane::kCompute, -1, 0}, m,
              {Stage::kReduced, Trigger::kSubmitted},
              {Slot::kPassGradient, Slot::kReducedGradient});
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

void PlanBuilder::TakeTurn(std::int32_t m, Slot slot, int ring, int places) {
  if (matrix(m).buffers[static_cast<int>(slot)] >= 0) return;
  Ring& turns = rings_[{slot, ring}];
  if (static_cast<int>(turns.buffers.size()) < places) turns.buffers.push_back(plan_.buffers++);
  const std::int32_t buffer = turns.buffers[turns.next % turns.buffers.size()];
  turns.next = (turns.next + 1) % places;
  const std::int32_t set = SetOf(matrix(m), slot);
  if (set < 0) {
    plan_.matrices[m].buffers[static_cast<int>(slot)] = buffer;
  } else {
    for (std::int32_t each : plan_.sets[set]) {
      plan_.matrices[each].buffers[static_cast<int>(slot)] = buffer;
    }
  }
}

void PlanBuilder::GiveBuffers() {
  for (std::size_t m = 0; m < plan_.matrices.size(); ++m) {
    PlanMatrix& matrix = plan_.matrices[m];
    const SlotExtents extents(plan_, static_cast<std::int32_t>(m));
    for (int s = 1; s < kSlotCount; ++s) {
      const Slot slot = static_cast<Slot>(s);
      if (matrix.buffers[s] >= 0 || !extents.HeldAnywhere(slot)) continue;
      const std::int32_t set = SetOf(matrix, slot);
      const std::int32_t buffer = plan_.buffers++;
      matrix.buffers[s] = buffer;
      if (set < 0) continue;
      for (std::int32_t each : plan_.sets[set]) plan_.matrices[each].buffers[s] = buffer;
    }
  }
}

absl::Status PlanBuilder::Finish(int only_rank) {
  GiveBuffers();
  plan_.lanes.assign(grid().size(), {});
  for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
    const Op& op = plan_.ops[i];
    const auto lane = static_cast<std::size_t>(op.lane);
    if (only_rank >= 0) {
      const std::vector<std::vector<int>>& parts = plan_.groups[op.group].parts;
      const bool everybody = parts.size() > 1 || parts[0].size() == plan_.lanes.size();
      if (!everybody && plan_.groups[op.group].PartOf(only_rank) < 0) continue;
      plan_.lanes[only_rank][lane].push_back(static_cast<std::int32_t>(i));
      continue;
    }
    for (const std::vector<int>& part : plan_.groups[op.group].parts) {
      for (int rank : part) plan_.lanes[rank][lane].push_back(static_cast<std::int32_t>(i));
    }
  }
  BufferSizes sizes(plan_);
  std::int64_t most = 0;
  int rank_with_most = 0;
  for (int rank = 0; rank < grid().size(); ++rank) {
    if (only_rank >= 0 && rank != only_rank) continue;
    const std::int64_t bytes = sizes.Total(rank);
    if (bytes <= most) continue;
    most = bytes;
    rank_with_most = rank;
  }
  if (plan_.limits.buffer_bytes == 0) plan_.limits.buffer_bytes = most;
  if (most <= plan_.limits.buffer_bytes) return absl::OkStatus();
  const PlanMatrix& largest = plan_.matrices[sizes.Largest(rank_with_most)];
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", rank_with_most, " needs ", most, " bytes of buffers, more than the ",
                   plan_.limits.buffer_bytes, " allowed; matrix '", largest.name, "' of ",
                   largest.rows, " x ", largest.cols, " takes most of them."));
}

}  // namespace weft::scheduler
