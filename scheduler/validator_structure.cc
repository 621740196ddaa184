#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/access.h"
#include "scheduler/buffers.h"
#include "scheduler/limits.h"
#include "scheduler/slots.h"
#include "scheduler/validator.h"

namespace weft::scheduler {
namespace {

bool InRange(std::int64_t index, std::size_t size) {
  return index >= 0 && index < static_cast<std::int64_t>(size);
}

absl::Status CheckMatrix(const Plan& plan, const PlanMatrix& matrix) {
  const ProcessGrid& grid = plan.topology.grid;
  if (!IsDType(matrix.dtype) || matrix.layout > kLastLayout ||
      matrix.gradient > kLastGradientKind || matrix.rule > RuleKind::kCustom) {
    return InvalidPlan("matrix '", matrix.name, "' has a field that names nothing");
  }
  if (matrix.rows < 0 || matrix.cols < 0 || TooLarge(matrix.rows, matrix.cols)) {
    return InvalidPlan("matrix '", matrix.name, "' has a negative or too large shape");
  }
  if (IsSharded(matrix.layout)) {
    std::int64_t rows = 0;
    for (std::int64_t shard : matrix.shard_rows) {
      if (shard < 0 || shard > matrix.rows - rows) rows = -1;
      if (rows < 0) break;
      rows += shard;
    }
    const auto shards = static_cast<std::size_t>(ShardCount(grid, matrix.layout));
    if (matrix.shard_rows.size() != shards || rows != matrix.rows) {
      return InvalidPlan("matrix '", matrix.name, "' has shards that are not its rows");
    }
  }
  if (matrix.layout == Layout::kOwned && plan.strategy != Strategy::kOwner) {
    return InvalidPlan("matrix '", matrix.name, "' is owned, but the strategy is not owner");
  }
  if (HasReplicas(matrix) ? !TwoLevel(grid) : matrix.gradient == GradientKind::kReplica) {
    return InvalidPlan("matrix '", matrix.name, "' is as if it had replicas, and has none");
  }
  if (HasReplicas(matrix) && matrix.rule != RuleKind::kElementwise &&
      (plan.strategy == Strategy::kReplicated || plan.strategy == Strategy::kLayerwise)) {
    return InvalidPlan("matrix '", matrix.name, "' has replicas, which its strategy cannot serve");
  }
  if (matrix.period < 1 || matrix.phase < 0 || matrix.phase >= matrix.period ||
      (matrix.period > 1 && matrix.rule != RuleKind::kMuon) || matrix.norm_vectors < 0) {
    return InvalidPlan("matrix '", matrix.name, "' has a period, phase or rule that do not fit");
  }
  const char* against = matrix.pass_through ? AgainstPassThrough(plan.strategy, matrix) : nullptr;
  if (against != nullptr) {
    return InvalidPlan("matrix '", matrix.name, "' cannot pass through: ", against);
  }
  const bool owned = GetsOwner(grid, plan.strategy, matrix);
  const int choices = OwnerChoices(grid, plan.strategy);
  if (owned ? !InRange(matrix.owner, choices) : matrix.owner != -1) {
    return InvalidPlan("matrix '", matrix.name, "' has the owner ", matrix.owner);
  }
  return absl::OkStatus();
}

absl::Status CheckGroup(const Group& group, int ranks) {
  if (group.parts.empty()) return InvalidPlan("group '", group.name, "' is empty");
  std::vector<bool> member(ranks);
  for (std::size_t p = 0; p < group.parts.size(); ++p) {
    const std::string name = group.PartName(p);
    if (group.parts[p].empty()) return InvalidPlan("group '", name, "' is empty");
    int last = -1;
    for (int rank : group.parts[p]) {
      if (rank <= last || rank >= ranks) {
        return InvalidPlan("group '", name, "' lists rank ", rank,
                           ", which is not above the one before it or not in the world");
      }
      if (member[rank]) return InvalidPlan("rank ", rank, " is twice in group '", group.name, "'");
      member[rank] = true;
      last = rank;
    }
  }
  return absl::OkStatus();
}

// A set is what its matrices say of it, and they could be one matrix as far as its ops care; in an
// exchange, but for their owners.
absl::Status CheckSets(const Plan& plan) {
  for (std::size_t s = 0; s < plan.sets.size(); ++s) {
    const std::vector<std::int32_t>& set = plan.sets[s];
    const auto exists = [&](std::int32_t m) { return InRange(m, plan.matrices.size()); };
    const auto index = static_cast<std::int32_t>(s);
    const bool known = set.size() >= 2 && std::all_of(set.begin(), set.end(), exists);
    const bool exchange = known && plan.matrices[set[0]].exchange == index;
    const auto place = [&](std::int32_t m) {
      return std::pair(exchange ? plan.matrices[m].owner : 0, m);
    };
    const bool in_order =
        known && std::adjacent_find(set.begin(), set.end(), [&](std::int32_t a, std::int32_t b) {
                   return place(a) >= place(b);
                 }) == set.end();
    if (!in_order) return InvalidPlan("set ", s, " is not of two or more matrices in order");
    const PlanMatrix& first = plan.matrices[set[0]];
    const bool batch = first.batch == index;
    const bool norms = first.norm_set == index;
    for (std::int32_t m : set) {
      const PlanMatrix& matrix = plan.matrices[m];
      const bool muon_of_layers =
          PathOf(plan.topology, plan.strategy, matrix) == PathKind::kLayerwise &&
          matrix.rule == RuleKind::kMuon && matrix.bucket == -1;
      const bool same_steps = matrix.period == first.period && matrix.phase == first.phase;
      const bool alike = matrix.gradient == first.gradient && matrix.dtype == first.dtype;
      if ((batch      ? matrix.batch
           : norms    ? matrix.norm_set
           : exchange ? matrix.exchange
                      : matrix.bucket) != index ||
          (exchange ? !muon_of_layers : !same_steps) ||
          (!exchange && !norms && matrix.owner != first.owner) || (!norms && !alike) ||
          matrix.layout != first.layout || matrix.rule != first.rule ||
          (batch && (matrix.rows != first.rows || matrix.cols != first.cols ||
                     matrix.ns_run != first.ns_run))) {
        return InvalidPlan("matrix '", matrix.name, "' does not fit into set ", s, " with '",
                           first.name, "'");
      }
    }
  }
  for (const PlanMatrix& matrix : plan.matrices) {
    for (std::int32_t set : {matrix.bucket, matrix.batch, matrix.exchange, matrix.norm_set}) {
      if (set != -1 && !InRange(set, plan.sets.size())) {
        return InvalidPlan("matrix '", matrix.name, "' is in set ", set, ", which does not exist");
      }
    }
  }
  return absl::OkStatus();
}

// Matrices share a buffer in one slot only, those of a set side by side; what is written or read
// from outside the plan is shared with none.
absl::Status CheckBuffers(const Plan& plan) {
  std::vector<Slot> slot_of(plan.buffers, Slot::kNone);
  std::vector<std::int32_t> occupant(plan.buffers);
  for (std::size_t m = 0; m < plan.matrices.size(); ++m) {
    const PlanMatrix& matrix = plan.matrices[m];
    const SlotExtents extents(plan, static_cast<std::int32_t>(m));
    for (int s = 1; s < kSlotCount; ++s) {
      const Slot slot = static_cast<Slot>(s);
      const std::string what =
          absl::StrCat("the ", std::string(Name(slot)), " of matrix '", matrix.name, "'");
      const std::int32_t buffer = matrix.buffers[s];
      if (buffer == -1 && !extents.HeldAnywhere(slot)) continue;
      if (!InRange(buffer, slot_of.size())) return InvalidPlan(what, " has no buffer");
      const std::int32_t mine = OccupantOf(plan, static_cast<std::int32_t>(m), slot);
      const bool outside =
          slot == Slot::kGradient || (slot == Slot::kWeight && matrix.layout != Layout::kOwned);
      if (slot_of[buffer] == Slot::kNone) {
        slot_of[buffer] = slot;
        occupant[buffer] = mine;
      } else if (slot_of[buffer] != slot || (outside && occupant[buffer] != mine)) {
        return InvalidPlan(what, " shares a buffer that it must not share");
      }
      const std::int32_t set = SetOf(matrix, slot);
      if (set >= 0 && plan.matrices[plan.sets[set][0]].buffers[s] != buffer) {
        return InvalidPlan(what, " does not lie beside those of its set");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOp(const Plan& plan, std::int32_t index) {
  const Op& op = plan.ops[index];
  const std::string what = DescribeOp(plan, index);
  if (op.kind > OpKind::kUse || op.lane > Lane::kCaller || op.stage > Stage::kDelivered ||
      op.trigger > Trigger::kNeeded || static_cast<int>(op.source) >= kSlotCount ||
      static_cast<int>(op.target) >= kSlotCount || op.when > When::kBetween) {
    return InvalidPlan(what, " has a field that names nothing");
  }
  const bool verdict = op.kind == OpKind::kVerdict;
  if (!InRange(op.group, plan.groups.size())) return InvalidPlan(what, " has no group");
  if (verdict ? op.matrix != -1 : !InRange(op.matrix, plan.matrices.size())) {
    return InvalidPlan(what, " has the matrix index ", op.matrix);
  }
  const bool use = op.kind == OpKind::kUse;
  const bool writes_none = verdict || use || op.kind == OpKind::kCheckGradient;
  if ((op.source == Slot::kNone) != verdict || (op.target == Slot::kNone) != writes_none) {
    return InvalidPlan(what, writes_none ? " has a slot too many" : " lacks a slot");
  }
  const bool exchange = !verdict && IsExchange(plan, op);
  const std::int32_t set = verdict ? -1 : SetOf(plan.matrices[op.matrix], op.kind, op.target);
  if (op.set != set || (set >= 0 && plan.sets[set][0] != op.matrix)) {
    return InvalidPlan(what, " is of set ", op.set, ", not of set ", set, " from its first matrix");
  }
  const std::vector<std::vector<int>>& parts = plan.groups[op.group].parts;
  const bool alone = plan.topology.grid.size() == 1;
  for (const std::vector<int>& ranks : parts) {
    if (IsCollective(op.kind) && ranks.size() == 1 && !(verdict && alone)) {
      return InvalidPlan(what, " is a collective of rank ", ranks[0], " alone");
    }
    if (exchange && ranks.size() != static_cast<std::size_t>(plan.topology.grid.size())) {
      return InvalidPlan(what, " is an exchange among ", ranks.size(), " ranks, not all");
    }
    if (IsRooted(op.kind) && !exchange && !InRange(op.root, ranks.size())) {
      return InvalidPlan(what, " has its root at place ", op.root, " of ", ranks.size());
    }
  }
  const bool has_root = IsRooted(op.kind) && !exchange;
  if (!has_root && op.root != -1) return InvalidPlan(what, " has a root too many");
  const bool on_compute = (!IsCollective(op.kind) && !use) || (verdict && alone);
  if ((op.lane == Lane::kCompute) != on_compute || (op.lane == Lane::kCaller) != use) {
    return InvalidPlan(what, " must not be on the ", std::string(Name(op.lane)), " lane");
  }
  const int last_pass = plan.limits.reduce_each_pass ? plan.limits.passes - 1 : 0;
  const bool submitted = op.trigger == Trigger::kSubmitted && !verdict;
  const bool once = submitted && ReducingPasses(plan, plan.matrices[op.matrix]) == 1;
  if (op.pass < (once ? last_pass : 0) || op.pass > (submitted ? last_pass : 0)) {
    return InvalidPlan(what, " is of pass ", op.pass, ", which its trigger or matrix has not");
  }
  const bool fetches = op.trigger == Trigger::kNeeded;
  if (fetches ? op.use < (use ? 0 : -1) || op.use >= static_cast<int>(plan.uses.size())
              : op.use != -1 || use) {
    return InvalidPlan(what, " is of use ", op.use, " of ", plan.uses.size());
  }
  if (fetches && (verdict || plan.matrices[op.matrix].layout != Layout::kOwned)) {
    return InvalidPlan(what, " is for the trainer's use, but its matrix is not owned");
  }
  if (exchange && op.kind != OpKind::kReduceScatter && op.kind != OpKind::kAllGather &&
      op.kind != OpKind::kGather && op.kind != OpKind::kScatter) {
    return InvalidPlan(what, " is no collective of an exchange");
  }
  const bool spreads = op.kind == OpKind::kBroadcast || (exchange && op.kind == OpKind::kAllGather);
  if (spreads && op.source != op.target) {
    return InvalidPlan(what, " must leave what it sends where it lies");
  }
  const bool may_split = op.kind == OpKind::kReduce || op.kind == OpKind::kBroadcast;
  const bool may_be_cut =
      (may_split && op.form == CollectiveForm::kDirect) || op.kind == OpKind::kAllReduce;
  if (op.pieces < 1 || op.pieces > 1024 || op.piece < 0 || op.piece >= op.pieces ||
      (op.pieces > 1 && !may_be_cut)) {
    return InvalidPlan(what, " is piece ", op.piece, " of ", op.pieces);
  }
  if (op.form > CollectiveForm::kSplit || (op.form == CollectiveForm::kSplit && !may_split)) {
    return InvalidPlan(what, " has a form that is not for it");
  }
  if (op.when != When::kAlways &&
      (op.trigger != Trigger::kStepClosed || verdict || plan.matrices[op.matrix].period == 1)) {
    return InvalidPlan(what, " is for some steps only, which its trigger or matrix is not");
  }
  if (op.bytes < 0 || !(op.flops >= 0)) return InvalidPlan(what, " has a negative cost");
  for (const std::vector<std::int32_t>* list : {&op.after, &op.after_previous}) {
    for (std::int32_t before : *list) {
      if (!InRange(before, plan.ops.size())) {
        return InvalidPlan(what, " comes after op ", before, ", which does not exist");
      }
    }
  }
  return absl::OkStatus();
}

// What runs as one begins together and in no order: it must be the same of both, the two must not
// touch the same memory, and neither may wait for the other.
absl::Status CheckPair(const Plan& plan, std::int32_t index) {
  const Op& op = plan.ops[index];
  const std::string what = DescribeOp(plan, index);
  if (!InRange(index + 1, plan.ops.size())) return InvalidPlan(what, " has no op to run with");
  const Op& next = plan.ops[index + 1];
  const std::string with = DescribeOp(plan, index + 1);
  const auto single = [](const Op& one) {
    return one.form == CollectiveForm::kDirect && one.pieces == 1;
  };
  const bool alike = op.root >= 0 && next.root >= 0 && next.kind == op.kind &&
                     next.group == op.group && next.lane == op.lane && next.trigger == op.trigger &&
                     next.use == op.use && next.pass == op.pass && single(op) && single(next) &&
                     !next.with_next && SameSteps(plan, op, next);
  const std::vector<std::vector<int>>& parts = plan.groups[op.group].parts;
  const bool of_two = std::all_of(parts.begin(), parts.end(),
                                  [](const std::vector<int>& part) { return part.size() == 2; });
  if (!alike || !of_two || next.root == op.root) {
    return InvalidPlan(what, " cannot run as one with ", with,
                       ": they are not opposite collectives of a group of two");
  }
  if (std::find(next.after.begin(), next.after.end(), index) != next.after.end()) {
    return InvalidPlan(with, " waits for ", what, ", with which it is to run as one");
  }
  for (const Slot mine : {op.source, op.target}) {
    for (const Slot theirs : {next.source, next.target}) {
      const std::int32_t buffer = plan.matrices[op.matrix].buffers[static_cast<int>(mine)];
      if (op.matrix == next.matrix ||
          (buffer >= 0 && buffer == plan.matrices[next.matrix].buffers[static_cast<int>(theirs)])) {
        return InvalidPlan(what, " and ", with, " run as one on the same memory");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStructure(const Plan& plan) {
  if (plan.buffers < 0 || plan.strategy > kLastStrategy || !CheckLimits(plan.limits).ok()) {
    return InvalidPlan("its strategy, limits or number of buffers name nothing");
  }
  const ProcessGrid& grid = plan.topology.grid;
  if (!Validate(plan.topology).ok() || plan.lanes.size() != static_cast<std::size_t>(grid.size())) {
    return InvalidPlan("it has lanes for ", plan.lanes.size(), " ranks on a grid of ", grid.nodes,
                       " x ", grid.ranks_per_node);
  }
  for (const PlanMatrix& matrix : plan.matrices) WEFT_RETURN_IF_ERROR(CheckMatrix(plan, matrix));
  WEFT_RETURN_IF_ERROR(CheckSets(plan));
  WEFT_RETURN_IF_ERROR(CheckBuffers(plan));
  for (const Group& group : plan.groups) WEFT_RETURN_IF_ERROR(CheckGroup(group, grid.size()));
  constexpr int kUnused = -1;
  std::vector<int> lane_of_group(plan.groups.size(), kUnused);
  int verdicts = 0;
  int pass = 0;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    WEFT_RETURN_IF_ERROR(CheckOp(plan, index));
    const Op& op = plan.ops[i];
    if (op.trigger == Trigger::kSubmitted && verdicts > 0) {
      return InvalidPlan(DescribeOp(plan, index), " comes after the verdict");
    }
    // A later pass's gradient must not be waited for before the slot is free for it, nor a gradient
    // held back by what its trainer only comes to later.
    if (op.trigger == Trigger::kNeeded && plan.limits.reduce_each_pass && op.use >= 0) {
      const int uses_of_pass = static_cast<int>(plan.uses.size()) / plan.limits.passes;
      pass = std::max(pass, op.use / std::max(1, uses_of_pass));
    }
    if (op.trigger == Trigger::kSubmitted) {
      if (op.pass < pass) {
        return InvalidPlan(DescribeOp(plan, index), " is of pass ", op.pass,
                           " and comes after an op of pass ", pass);
      }
      pass = op.pass;
    }
    if (!IsCollective(op.kind)) continue;
    int& lane = lane_of_group[op.group];
    if (lane != kUnused && lane != static_cast<int>(op.lane)) {
      return InvalidPlan(DescribeOp(plan, index), " is on the ", std::string(Name(op.lane)),
                         " lane, its communicator on the ",
                         std::string(Name(static_cast<Lane>(lane))), " lane");
    }
    lane = static_cast<int>(op.lane);
    if (op.kind != OpKind::kVerdict) continue;
    ++verdicts;
    const std::int64_t bytes = 4 * VerdictFloats(plan.matrices.size(), grid.size());
    if (op.bytes != bytes) {
      return InvalidPlan(DescribeOp(plan, index), " carries ", op.bytes, " bytes, not ", bytes);
    }
    const std::vector<std::vector<int>>& parts = plan.groups[op.group].parts;
    if (parts.size() != 1 || parts[0].size() != static_cast<std::size_t>(grid.size())) {
      return InvalidPlan(DescribeOp(plan, index), " must include every rank");
    }
  }
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    if (!plan.ops[i].with_next) continue;
    WEFT_RETURN_IF_ERROR(CheckPair(plan, static_cast<std::int32_t>(i)));
  }
  if (verdicts != 1) return InvalidPlan("it has ", verdicts, " verdicts, not one");
  return absl::OkStatus();
}

}  // namespace weft::scheduler
