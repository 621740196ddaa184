// From a request to a plan: checks the request, decides each matrix's path and owner, and runs the
// phases of a step.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/dependencies.h"
#include "scheduler/limits.h"
#include "scheduler/owner_assignment.h"
#include "scheduler/peak_bytes.h"
#include "scheduler/plan_builder.h"
#include "scheduler/sets.h"
#include "scheduler/slots.h"
#include "scheduler/strategies/path.h"
#include "scheduler/uses.h"
#include "scheduler/validator.h"
#include "weft/plan.h"

namespace weft {
namespace scheduler {
namespace {

constexpr int kAllRanks = -1;

absl::Status CheckShards(const PlanMatrix& matrix, const ProcessGrid& grid) {
  if (!IsSharded(matrix.layout)) {
    if (matrix.shard_rows.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("matrix '", matrix.name, "' is not sharded and must not have shard rows."));
  }
  const int ranks = ShardCount(grid, matrix.layout);
  if (matrix.shard_rows.size() != static_cast<std::size_t>(ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix '", matrix.name, "' has shard rows for ", matrix.shard_rows.size(),
                     " of ", ranks, HasReplicas(matrix) ? " ranks per node." : " ranks."));
  }
  std::int64_t left = matrix.rows;
  for (std::int64_t rows : matrix.shard_rows) {
    if (rows < 0 || rows > left) {
      return absl::InvalidArgumentError(absl::StrCat("matrix '", matrix.name,
                                                     "' has shard rows that are negative or do not "
                                                     "add up to its ",
                                                     matrix.rows, " rows."));
    }
    left -= rows;
  }
  if (left != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix '", matrix.name, "' has shard rows that add up to ",
                     matrix.rows - left, ", not to its ", matrix.rows, " rows."));
  }
  return absl::OkStatus();
}

absl::Status CheckMatrix(const PlanMatrix& matrix, const ProcessGrid& grid) {
  const std::string named = absl::StrCat("matrix '", matrix.name, "'");
  if (!IsDType(matrix.dtype) || matrix.layout > kLastLayout ||
      matrix.gradient > kLastGradientKind || matrix.rule > RuleKind::kCustom) {
    return absl::InvalidArgumentError(
        absl::StrCat(named, " has a dtype, layout, gradient kind or rule that names nothing."));
  }
  if (matrix.gradient == GradientKind::kReplica && !HasReplicas(matrix)) {
    return absl::InvalidArgumentError(absl::StrCat(
        named, " has gradients of kind replica, which only a node_sharded matrix can have."));
  }
  if (matrix.rows < 0 || matrix.cols < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(named, " has the negative shape ", matrix.rows, " x ", matrix.cols, "."));
  }
  if (TooLarge(matrix.rows, matrix.cols)) {
    return absl::InvalidArgumentError(
        absl::StrCat(named, " of ", matrix.rows, " x ", matrix.cols, " is too large."));
  }
  if (!std::isfinite(matrix.flops) || matrix.flops < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(named, " must have a finite cost that is not negative."));
  }
  if (matrix.state_bytes_per_element < 0 ||
      matrix.state_bytes_per_element > kMostStateBytesPerElement) {
    return absl::InvalidArgumentError(absl::StrCat(named, " has ", matrix.state_bytes_per_element,
                                                   " bytes of state per element; 0 to ",
                                                   kMostStateBytesPerElement, " are possible."));
  }
  if (matrix.period < 1 || matrix.phase < 0 || matrix.phase >= matrix.period) {
    return absl::InvalidArgumentError(absl::StrCat(named, " has the period ", matrix.period,
                                                   " and the phase ", matrix.phase,
                                                   "; phases go from 0 to below the period."));
  }
  if (matrix.period > 1 && matrix.rule != RuleKind::kMuon) {
    return absl::InvalidArgumentError(
        absl::StrCat(named, " is periodic, which only matrices with the rule muon can be."));
  }
  if (matrix.norm_vectors < 0 || matrix.norm_vectors > std::max<std::int64_t>(matrix.rows, 1) ||
      (matrix.norm_vectors > 0 && matrix.period == 1)) {
    return absl::InvalidArgumentError(absl::StrCat(named, " has ", matrix.norm_vectors,
                                                   " vectors of norms, which does not fit."));
  }
  return CheckShards(matrix, grid);
}

absl::Status CheckMatrices(const std::vector<PlanMatrix>& matrices, const ProcessGrid& grid) {
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    if (matrices[i].name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("matrix number ", i, " has no name."));
    }
    if (!names.insert(matrices[i].name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is more than one matrix '", matrices[i].name, "'."));
    }
    WEFT_RETURN_IF_ERROR(CheckMatrix(matrices[i], grid));
  }
  return absl::OkStatus();
}

// Refuses layouts that the strategy cannot serve and notes where it takes another path.
absl::Status ChooseLayouts(Plan& plan, bool strict) {
  for (PlanMatrix& matrix : plan.matrices) {
    matrix.fallback.clear();
    if (matrix.layout == Layout::kOwned && plan.strategy != Strategy::kOwner) {
      return absl::FailedPreconditionError(
          absl::StrCat("matrix '", matrix.name, "' is owned, which strategy ",
                       std::string(Name(plan.strategy)), " cannot serve; use owner."));
    }
    const char* against = matrix.pass_through ? AgainstPassThrough(plan.strategy, matrix) : nullptr;
    if (against != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("matrix '", matrix.name, "' cannot pass through: ", against, "."));
    }
    if (matrix.rule == RuleKind::kElementwise) continue;
    if (plan.strategy == Strategy::kReplicated && matrix.layout == Layout::kSharded) {
      return absl::FailedPreconditionError(
          absl::StrCat("matrix '", matrix.name,
                       "' is sharded, which strategy replicated cannot serve; use gather, "
                       "owner, node_local or layerwise."));
    }
    const bool serves_replicas =
        plan.strategy != Strategy::kReplicated && plan.strategy != Strategy::kLayerwise;
    if (HasReplicas(matrix) && !serves_replicas) {
      return absl::FailedPreconditionError(
          absl::StrCat("matrix '", matrix.name, "' is node_sharded, which strategy ",
                       std::string(Name(plan.strategy)),
                       " cannot serve on several nodes; use gather, owner or node_local."));
    }
    if (plan.strategy == Strategy::kGather && matrix.layout == Layout::kReplicated) {
      matrix.fallback =
          "strategy gather needs shards; a replicated matrix takes the replicated path";
      if (strict) {
        return absl::FailedPreconditionError(
            absl::StrCat("matrix '", matrix.name,
                         "' would fall back and strict forbids it: ", matrix.fallback, "."));
      }
    }
  }
  return absl::OkStatus();
}

// The same on every rank: no solver whose build or time could differ.
absl::StatusOr<std::vector<int>> ChooseOwners(const AssignmentProblem& problem,
                                              AssignmentReport& report) {
  SolverOptions options;
  options.milp = false;
  WEFT_ASSIGN_OR_RETURN(OwnerAssignment chosen, SolveAssignment(problem, options));
  report = chosen.report;
  return std::move(chosen.owners);
}

absl::Status AssignOwners(Plan& plan, const OwnershipOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOwnership(plan, options));
  FormBuckets(plan, options);
  const PosedProblem posed = Pose(plan, options);
  std::vector<int> owners;
  if (options.owners.empty()) {
    WEFT_ASSIGN_OR_RETURN(owners, ChooseOwners(posed.problem, plan.owner_report));
  } else {
    for (std::int32_t m : posed.matrices) owners.push_back(options.owners[m]);
    WEFT_RETURN_IF_ERROR(CheckCaps(posed.problem, owners));
  }
  for (std::size_t i = 0; i < owners.size(); ++i) {
    for (std::int32_t m : TravelsWith(plan, posed.matrices[i])) plan.matrices[m].owner = owners[i];
  }
  FormExchanges(plan);
  FormBatches(plan, options);
  FormNormSets(plan);
  return absl::OkStatus();
}

const Path& PathFor(const Plan& plan, const PlanMatrix& matrix) {
  switch (PathOf(plan.topology, plan.strategy, matrix)) {
    case PathKind::kElementwise:
      return ElementwisePath();
    case PathKind::kGather:
      return GatherPath();
    case PathKind::kOwner:
      return OwnerPath();
    case PathKind::kNodeLocal:
      return NodeLocalPath();
    case PathKind::kOwnerOfShards:
      return OwnerOfShardsPath();
    case PathKind::kLayerwise:
      return LayerwisePath();
    case PathKind::kLocal:
    case PathKind::kReplicated:
      break;
  }
  return ReplicatedPath();
}

std::string Describe(const Plan& plan, const PlanMatrix& matrix) {
  if (PathOf(plan.topology, plan.strategy, matrix) == PathKind::kLocal) {
    return absl::StrCat("local: ", RuleWork(matrix));
  }
  return PathFor(plan, matrix).Describe(matrix);
}

// Travellers in the order in which their owners will be done with them, by FLOPs: each owner works
// through its units in use order.
std::vector<std::int32_t> PublishOrder(const Plan& plan,
                                       const std::vector<std::vector<std::int32_t>>& units) {
  std::vector<double> load(plan.topology.grid.size());
  std::vector<double> finish(plan.matrices.size());
  std::vector<std::int32_t> order;
  for (const std::vector<std::int32_t>& unit : units) {
    const std::int32_t owner = plan.matrices[unit[0]].owner;
    double flops = 0;
    for (std::int32_t lead : unit) {
      for (std::int32_t m : TravelsWith(plan, lead)) flops += plan.matrices[m].flops;
    }
    if (owner >= 0) load[owner] += flops;
    for (std::int32_t lead : unit) {
      finish[lead] = owner >= 0 ? load[owner] : 0;
      order.push_back(lead);
    }
  }
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return std::pair(finish[a], a) < std::pair(finish[b], b);
  });
  return order;
}

// Travellers by what one update takes: those whose NS is one batch come with its first.
std::vector<std::vector<std::int32_t>> UpdateUnits(const Plan& plan,
                                                   const std::vector<std::int32_t>& travellers) {
  std::vector<std::vector<std::int32_t>> units;
  for (std::int32_t m : travellers) {
    const PlanMatrix& matrix = plan.matrices[m];
    if (matrix.bucket >= 0 || matrix.batch < 0) {
      units.push_back({m});
    } else if (plan.sets[matrix.batch][0] == m) {
      units.push_back(plan.sets[matrix.batch]);
    }
  }
  return units;
}

absl::Status EmitStep(Plan& plan, const FormChoices& forms, int only_rank) {
  std::vector<const Path*> paths;
  for (PlanMatrix& matrix : plan.matrices) {
    paths.push_back(&PathFor(plan, matrix));
    matrix.path = Describe(plan, matrix);
  }
  PlanBuilder builder(plan, forms);
  const std::vector<std::int32_t> forward = Travellers(plan);
  const std::vector<std::int32_t> backward(forward.rbegin(), forward.rend());
  UseBuilder uses(plan, builder);
  WEFT_RETURN_IF_ERROR(uses.Prepare());
  const int passes = plan.limits.passes;
  for (int pass = 0; pass < passes; ++pass) {
    const bool last = pass + 1 == passes;
    // Then EmitForward() of the last pass emits what the others have.
    if (!last && !plan.limits.reduce_each_pass) continue;
    if (plan.limits.reduce_each_pass) builder.BeginPass(pass);
    uses.EmitForward(pass);
    for (std::int32_t m : backward) {
      uses.EmitBackwardUpTo(m, pass);
      if (!last && ReducingPasses(plan, plan.matrices[m]) == 1) continue;
      paths[m]->Reduce(builder, m);
    }
    builder.EmitWaiting(Trigger::kSubmitted);
  }
  if (plan.check_gradients) {
    for (std::int32_t m : backward) {
      const Path::Holders holders = paths[m]->GradientHolders(builder, m);
      builder.CheckGradient(holders.group, m, holders.slot);
    }
  }
  builder.Verdict();
  for (std::int32_t m : forward) paths[m]->Prepare(builder, m);
  std::size_t collected = 0;
  const auto ahead = static_cast<std::size_t>(plan.limits.buffers_in_turn);
  std::vector<std::vector<std::int32_t>> units = UpdateUnits(plan, forward);
  // What refreshes in the same steps stands together and takes turns at buffers one after another;
  // in these steps nothing waits for those that do not refresh. Of them, what waits for sums of
  // norms comes last: the work of the others hides them.
  const auto place = [&](const std::vector<std::int32_t>& unit) {
    const PlanMatrix& first = plan.matrices[unit[0]];
    const bool sums =
        first.norm_vectors > 0 && StateOnShards(PathOf(plan.topology, plan.strategy, first));
    return std::tuple(first.period, first.phase, sums);
  };
  std::stable_sort(units.begin(), units.end(),
                   [&](const auto& one, const auto& other) { return place(one) < place(other); });
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (; collected < units.size() && collected < i + ahead; ++collected) {
      for (std::int32_t m : units[collected]) paths[m]->Collect(builder, m);
    }
    builder.EmitWaiting(Trigger::kStepClosed);
    paths[units[i][0]]->Update(builder, units[i]);
  }
  const std::vector<std::int32_t> publishing = PublishOrder(plan, units);
  const std::size_t first_published = builder.ops();
  for (std::int32_t m : publishing) paths[m]->Publish(builder, m);
  builder.EmitWaiting(Trigger::kStepClosed);
  builder.Interleave(first_published);
  for (std::int32_t m : publishing) paths[m]->Deliver(builder, m);
  WEFT_RETURN_IF_ERROR(builder.Finish(only_rank));
  const std::vector<PeakBytes> peaks = PeakBytesOf(plan);
  for (std::size_t m = 0; m < peaks.size(); ++m) {
    plan.matrices[m].peak_bytes = peaks[m].taken;
    plan.matrices[m].alternative_peak_bytes = peaks[m].alternative;
  }
  DeriveDependencies(plan);
  return absl::OkStatus();
}

// A plan of checked matrices, without owners and ops.
absl::StatusOr<Plan> Start(const PlanRequest& request) {
  WEFT_RETURN_IF_ERROR(Validate(request.topology));
  if (request.strategy > kLastStrategy) {
    return absl::InvalidArgumentError("the strategy names nothing.");
  }
  Plan plan;
  plan.topology = request.topology;
  plan.strategy = request.strategy;
  plan.check_gradients = request.check_gradients;
  plan.matrices = request.matrices;
  plan.limits = request.limits;
  WEFT_RETURN_IF_ERROR(CheckLimits(plan.limits));
  const ProcessGrid& grid = request.topology.grid;
  for (PlanMatrix& matrix : plan.matrices) {
    matrix.owner = matrix.bucket = matrix.batch = matrix.exchange = matrix.norm_set = -1;
    if (IsSharded(matrix.layout) && matrix.shard_rows.empty() && matrix.rows >= 0) {
      matrix.shard_rows = DefaultShardRows(matrix.rows, ShardCount(grid, matrix.layout));
    }
  }
  WEFT_RETURN_IF_ERROR(CheckMatrices(plan.matrices, grid));
  for (PlanMatrix& matrix : plan.matrices) Simplify(grid, matrix);
  WEFT_RETURN_IF_ERROR(ChooseLayouts(plan, request.strict));
  return plan;
}

}  // namespace

absl::StatusOr<OwnerAssignment> SolveOwners(const PlanRequest& request,
                                            const SolverOptions& options) {
  WEFT_ASSIGN_OR_RETURN(Plan plan, Start(request));
  OwnershipOptions ownership = request.ownership;
  ownership.owners.clear();
  WEFT_RETURN_IF_ERROR(CheckOwnership(plan, ownership));
  FormBuckets(plan, ownership);
  const PosedProblem posed = Pose(plan, ownership);
  WEFT_ASSIGN_OR_RETURN(OwnerAssignment solved, SolveAssignment(posed.problem, options));
  std::vector<int> owners(request.matrices.size(), -1);
  for (std::size_t i = 0; i < posed.matrices.size(); ++i) {
    for (std::int32_t m : TravelsWith(plan, posed.matrices[i])) owners[m] = solved.owners[i];
  }
  solved.owners = std::move(owners);
  for (OwnerBatch& batch : solved.batches) {
    for (std::int32_t& matrix : batch.matrices) matrix = posed.matrices[matrix];
  }
  return solved;
}

}  // namespace scheduler

absl::StatusOr<Plan> BuildPlan(const PlanRequest& request) {
  WEFT_ASSIGN_OR_RETURN(Plan plan, scheduler::Start(request));
  WEFT_RETURN_IF_ERROR(scheduler::AssignOwners(plan, request.ownership));
  WEFT_RETURN_IF_ERROR(scheduler::EmitStep(plan, request.forms, scheduler::kAllRanks));
  WEFT_RETURN_IF_ERROR(ValidatePlan(plan));
  return plan;
}

absl::StatusOr<Plan> BuildRankPlan(const PlanRequest& request, int rank) {
  WEFT_ASSIGN_OR_RETURN(Plan plan, scheduler::Start(request));
  if (rank < 0 || rank >= plan.topology.grid.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is not one of ", plan.topology.grid.size(), "."));
  }
  WEFT_RETURN_IF_ERROR(scheduler::AssignOwners(plan, request.ownership));
  WEFT_RETURN_IF_ERROR(scheduler::EmitStep(plan, request.forms, rank));
  WEFT_RETURN_IF_ERROR(scheduler::CheckStructure(plan));
  WEFT_RETURN_IF_ERROR(scheduler::CheckOrder(plan));
  WEFT_RETURN_IF_ERROR(scheduler::CheckAccesses(plan));
  return plan;
}

}  // namespace weft
