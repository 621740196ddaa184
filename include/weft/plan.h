// The plan of one step as data: what every rank does, on which lane, in which order. Builders make
// it, the validator proves it, the executor runs it, the inspector prints it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "weft/dtype.h"
#include "weft/grid.h"
#include "weft/ownership.h"
#include "weft/plan_kinds.h"
#include "weft/plan_limits.h"
#include "weft/topology.h"

#pragma GCC visibility push(default)
namespace weft {

struct Op {
  OpKind kind;
  Lane lane;
  Stage stage;  // the stage of the job that this op works towards
  Trigger trigger;
  When when = When::kAlways;  // all matrices of the op have one period and phase, if not kAlways
  Slot source = Slot::kNone;
  Slot target = Slot::kNone;
  std::int32_t matrix = -1;  // index into Plan::matrices, the first of the set; -1 for kVerdict
  std::int32_t set = -1;     // index into Plan::sets where the op handles several matrices at once
  std::int32_t group = 0;    // index into Plan::groups
  // Rooted collectives: the root's place in each part of the group. -1 for those of an exchange,
  // where each matrix has its owner for root.
  std::int32_t root = -1;
  std::int32_t use = -1;  // kNeeded: index into Plan::uses
  // kSubmitted, with limits.reduce_each_pass: the pass whose gradient the op waits for; the last
  // where the matrix is reduced once in a step. Else 0.
  std::int32_t pass = 0;
  CollectiveForm form = CollectiveForm::kDirect;
  // This op carries the elements from count * piece / pieces to count * (piece + 1) / pieces.
  std::int32_t piece = 0;
  std::int32_t pieces = 1;
  // In a group of two: this collective runs as one with the op behind it, which is of the same kind
  // and has the other member for its root, so that both directions of the link are in use. Either
  // begins when the triggers and dependencies of both allow it.
  bool with_next = false;
  // Collectives: payload of the whole op in the source slot's type, not one rank's share of it: the
  // matrices, or the node's rows of one (gather and scatter inside a node); where the parts of the
  // group carry unequal payloads, the largest.
  std::int64_t bytes = 0;
  double flops = 0;  // per executing rank; the largest share where ranks hold unequal shards
  // Ops that are issued before this one on every rank that runs both: of this step, and of the step
  // before. A rank's device waits for those that its own data needs (docs/adr/0021). Ascending. Ops
  // before it on the same lane are implied and not listed, nor is what a chain of lanes and listed
  // ops implies.
  std::vector<std::int32_t> after;
  std::vector<std::int32_t> after_previous;
};

// The ranks of an op, in disjoint parts of which each does the op on its own, side by side with the
// others. A part with collectives is a communicator. Parts of one rank get none: they appear for
// compute ops, and for the verdict of a world of one, which is an op of its compute lane.
struct Group {
  std::string name;                     // "world", "intra", "inter 1", "replicas", "rank 3"
  std::vector<std::vector<int>> parts;  // world ranks, ascending

  // "intra 0" where there are several parts, else `name`.
  std::string PartName(std::size_t part) const;
  // -1 where the rank is in none.
  int PartOf(int rank) const;
};

// The trainer's reading of a layer's owned weights, in one of its passes.
struct Use {
  std::int32_t layer = 0;
  bool backward = false;
};

struct PlanMatrix {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::kF32;  // of weight and gradient
  // A plan has node_sharded matrices on grids of both levels only: on others it says sharded or
  // replicated, whichever comes to the same, and kReplica as kReduced or kLocal.
  Layout layout = Layout::kReplicated;
  // The layer that uses it. Owned weights are fetched by it, and gradients of all layouts come when
  // the backward pass (the last, where they are reduced once) has been through the owned weights of
  // their layer.
  std::int32_t layer = 0;
  GradientKind gradient = GradientKind::kLocal;
  RuleKind rule = RuleKind::kMuon;
  // Bytes of fp32 state that the rule keeps per element it works on (Muon 4, AdamW 8).
  std::int64_t state_bytes_per_element = 4;
  // Cost of one whole update in FLOPs: what owners are balanced by.
  double flops = 0;
  // Muon: which Newton-Schulz it runs, any number. Matrices with different ones never share a
  // batch.
  std::int32_t ns_run = 0;
  // Muon: NS runs in the steps t with (t - phase) mod period == 0, a row norm takes its place in
  // the others. 1: NS in every step. 0 <= phase < period.
  std::int32_t period = 1;
  std::int32_t phase = 0;
  // Of a periodic matrix in shards: how many vectors of `cols` norms its row norm divides by whose
  // rows lie on several ranks (one of each tall matrix that is stored in it).
  std::int32_t norm_vectors = 0;
  // Sharded: rows held by each rank of the world; node_sharded: by each local rank; sum == rows.
  // Empty in a request means DefaultShardRows().
  std::vector<std::int64_t> shard_rows;
  // Strategy owner, where an owner would run the rule: every rank does, as under replicated/gather.
  bool pass_through = false;
  // What the rule's options ask for against better knowledge, a sentence each without a full stop
  // (Muon: segments that the analysis finds unsafe). The plan carries them; `strict` allows them.
  // Advice for this rank's user: no rank does anything else for them.
  std::vector<std::string> warnings;

  // Filled by the builder:
  // The world rank that runs the rule, under node_local of the first node: those with its local
  // rank run it on the others. -1 when every rank does.
  std::int32_t owner = -1;
  std::int32_t bucket = -1;  // index into Plan::sets: the matrices that it travels with
  std::int32_t batch = -1;   // index into Plan::sets: the matrices that NS runs with it
  // Strategy layerwise: index into Plan::sets, the matrices of any owners that are reduced and
  // published with it, each to and from its own.
  std::int32_t exchange = -1;
  // Index into Plan::sets: those whose kNormSquares are summed with its.
  std::int32_t norm_set = -1;
  // The buffer behind each slot. Matrices share one by taking turns, or side by side:
  // BuffersOfRank().
  std::array<std::int32_t, kSlotCount> buffers = {};
  std::string path;      // e.g. "owner 3: reduce, NS, broadcast"
  std::string fallback;  // why the strategy's own path was not taken; empty if it was
  // The bytes of its slots in Weft's buffers on the rank that holds most of them, and of its part
  // of the scratch of collectives in split form. Neither the weight that a rank keeps nor the
  // rule's state.
  std::int64_t peak_bytes = 0;
  // The same on its other path, with an owner or passed through: in direct form, the owner where
  // that is most. -1 where it has no choice.
  std::int64_t alternative_peak_bytes = -1;
};

// Rows per rank as FSDP2 cuts them: blocks of ceil(rows / ranks), the last ones short or empty.
std::vector<std::int64_t> DefaultShardRows(std::int64_t rows, int ranks);

// Rows of a sharded or node_sharded matrix, of the world's ranks or of every node's, that `rank`
// holds.
inline std::int64_t ShardRows(const PlanMatrix& matrix, int rank) {
  return matrix.shard_rows[static_cast<std::size_t>(rank) % matrix.shard_rows.size()];
}

// Matrices in the order in which the forward pass uses them.
struct PlanRequest {
  Topology topology;
  Strategy strategy = Strategy::kOwner;
  std::vector<PlanMatrix> matrices;
  // Refuse (FailedPrecondition, with the reason) instead of falling back to another path.
  bool strict = false;
  // Have every part of every gradient checked once in the world before the verdict.
  bool check_gradients = false;
  OwnershipOptions ownership;  // what owners are chosen by (strategy owner)
  PlanLimits limits;
  FormChoices forms;
};

struct Plan {
  Topology topology;
  Strategy strategy = Strategy::kOwner;
  bool check_gradients = false;
  PlanLimits limits;
  std::vector<PlanMatrix> matrices;
  // Buckets and batches: matrices, ascending. Exchanges: by owner, those of one owner ascending.
  std::vector<std::vector<std::int32_t>> sets;
  std::int32_t buffers = 0;  // how many there are
  std::vector<Use> uses;     // of one step, in the order of the passes
  std::vector<Group> groups;
  std::vector<Op> ops;  // in one global order, which every lane keeps
  // lanes[rank][lane]: indices into ops, in issue order.
  std::vector<std::array<std::vector<std::int32_t>, kLaneCount>> lanes;
  // How good the owners are: an account of how they were found, no part of what is run.
  AssignmentReport owner_report;
};

// Rows of `matrix` that `slot` holds on `rank` under `plan`; 0 where no op of that rank touches it
// (so for kGradient where only the owner reads an already reduced gradient). Columns are always
// whole.
std::int64_t SlotRows(const Plan& plan, std::int32_t matrix, Slot slot, int rank);
// Element type of a slot.
DType SlotType(const PlanMatrix& matrix, Slot slot);

// Whether NS runs on the matrix in the `step`th step, counted from 0.
inline bool Refreshes(const PlanMatrix& matrix, std::int64_t step) {
  return matrix.period == 1 || (step - matrix.phase) % matrix.period == 0;
}
// Whether `op` has work to do in the step.
inline bool RunsIn(const Plan& plan, const Op& op, std::int64_t step) {
  if (op.when == When::kAlways) return true;
  return Refreshes(plan.matrices[op.matrix], step) == (op.when == When::kRefresh);
}
// After how many steps the work of steps repeats: 1 without periodic matrices. At most
// kMostCycleSteps where it would be more.
inline constexpr std::int64_t kMostCycleSteps = 5040;
std::int64_t CycleOf(const Plan& plan);

// The matrices that an op handles; empty for kVerdict. `op` must outlive the answer.
absl::Span<const std::int32_t> MatricesOf(const Plan& plan, const Op& op);
// Payload of a collective on `rank`, which is a member of its group.
std::int64_t PayloadBytes(const Plan& plan, const Op& op, int rank);

// Builds and validates. Pure and deterministic: equal requests give equal plans on every rank.
// InvalidArgument for a bad request (names the matrix), FailedPrecondition for a layout that the
// strategy cannot serve or a cap on owners that is not kept.
absl::StatusOr<Plan> BuildPlan(const PlanRequest& request);

// The same for one rank: the others' lanes are empty, and edges that `rank` does not need are left
// out. Proves what can be told from one rank. For a look at a large world; ranks that are to work
// together use BuildPlan().
absl::StatusOr<Plan> BuildRankPlan(const PlanRequest& request, int rank);

// Proves what design promises of a plan (docs/plan.md lists it); the message names op, rank and
// communicator.
absl::Status ValidatePlan(const Plan& plan);

// 64-bit digest of everything in the plan but its warnings, whose wording need not be the same on
// all ranks, and the report on its owners.
std::uint64_t Fingerprint(const Plan& plan);

// {"strategy": ..., "check_gradients": ..., "topology": ..., "limits": ..., "matrices": [...],
// "sets": [...], "groups": [...], "ops": [...], "lanes": [...]}, for people and tools; two spaces
// of indentation.
std::string PlanToJson(const Plan& plan);

}  // namespace weft
#pragma GCC visibility pop
