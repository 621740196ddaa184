// From what a request says of its owners to the owner problem.
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/owner_assignment.h"
#include "scheduler/sets.h"
#include "scheduler/slots.h"

namespace weft::scheduler {
namespace {

absl::Status CheckTables(const std::vector<std::vector<double>>& tables) {
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].empty()) {
      return absl::InvalidArgumentError(absl::StrCat("cost table ", t, " is empty."));
    }
    for (double cost : tables[t]) {
      if (std::isfinite(cost) && cost >= 0) continue;
      return absl::InvalidArgumentError(absl::StrCat("cost table ", t, " has the cost ", cost,
                                                     "; costs are finite and not negative."));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLength(const char* what, std::size_t length, std::size_t matrices) {
  if (length == 0 || length == matrices) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("there are ", what, " for ", length, " of ", matrices, " matrices."));
}

absl::Status CheckMatrix(const Plan& plan, const OwnershipOptions& options, std::size_t m) {
  const PlanMatrix& matrix = plan.matrices[m];
  const ProcessGrid& grid = plan.topology.grid;
  const bool owned = GetsOwner(grid, plan.strategy, matrix);
  const int choices = OwnerChoices(grid, plan.strategy);
  if (owned && !options.batch_costs.empty()) {
    const std::int32_t table = options.matrix_table[m];
    if (table < 0 || static_cast<std::size_t>(table) >= options.batch_costs.size()) {
      return absl::InvalidArgumentError(absl::StrCat("matrix '", matrix.name,
                                                     "' has the cost table ", table, " of ",
                                                     options.batch_costs.size(), "."));
    }
  }
  if (options.owners.empty()) return absl::OkStatus();
  const std::int32_t owner = options.owners[m];
  if (owned ? owner < 0 || owner >= choices : owner != -1) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix '", matrix.name, "' has the given owner ", owner, "; ",
                     owned ? absl::StrCat("0 to ", choices - 1, " are possible")
                           : std::string("it gets none, so -1 is meant"),
                     "."));
  }
  return absl::OkStatus();
}

// Bytes that a matrix's inter collectives carry in a step (docs/plan.md, "Paths"). Of an owned one,
// as if it were fetched for both passes. What goes between replicas loads all inter groups alike.
std::int64_t InterBytes(const Plan& plan, const PlanMatrix& matrix) {
  const auto element = static_cast<std::int64_t>(SizeOf(matrix.dtype));
  if (HasReplicas(matrix)) {
    const bool local = matrix.gradient == GradientKind::kLocal && matrix.period == 1;
    return local ? matrix.rows * matrix.cols * ReducingPasses(plan, matrix) * element : 0;
  }
  const bool sharded = matrix.layout == Layout::kSharded;
  const bool custom = matrix.rule == RuleKind::kCustom;
  std::int64_t per_element = sharded && !custom ? 4 : element;  // the direction, or the weight
  if (sharded || matrix.gradient == GradientKind::kLocal) {
    per_element += ReducingPasses(plan, matrix) * element;
  }
  if (sharded && custom) per_element += element;  // the weight on its way to the owner
  if (matrix.layout == Layout::kOwned) per_element += element;
  return matrix.rows * matrix.cols * per_element;
}

}  // namespace

absl::Status CheckOwnership(const Plan& plan, const OwnershipOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckTables(options.batch_costs));
  const std::size_t matrices = plan.matrices.size();
  WEFT_RETURN_IF_ERROR(CheckLength("cost tables", options.matrix_table.size(), matrices));
  WEFT_RETURN_IF_ERROR(CheckLength("layers", options.layers.size(), matrices));
  WEFT_RETURN_IF_ERROR(CheckLength("owners", options.owners.size(), matrices));
  if (!options.batch_costs.empty() && options.matrix_table.empty() && matrices > 0) {
    return absl::InvalidArgumentError("there are cost tables, but none is any matrix's.");
  }
  if (options.state_bytes_cap < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the cap of state is ", options.state_bytes_cap,
                                                   " bytes; it must not be negative."));
  }
  const double factor = options.inter_group_factor;
  if (!std::isfinite(factor) || (factor != 0 && factor < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("the factor of inter groups is ", factor,
                                                   "; it must be 0 (none), or 1 or more."));
  }
  for (std::size_t m = 0; m < matrices; ++m) {
    WEFT_RETURN_IF_ERROR(CheckMatrix(plan, options, m));
  }
  return absl::OkStatus();
}

PosedProblem Pose(const Plan& plan, const OwnershipOptions& options) {
  PosedProblem posed;
  AssignmentProblem& problem = posed.problem;
  problem.grid = plan.topology.grid;
  // Each node has the same owners.
  if (plan.strategy == Strategy::kNodeLocal) problem.grid.nodes = 1;
  problem.state_bytes_cap = options.state_bytes_cap;
  // On one node nothing goes between nodes, and collectives of the world are no inter group's.
  const bool has_inter_groups = problem.grid.nodes > 1 && plan.strategy != Strategy::kLayerwise;
  if (has_inter_groups) problem.inter_group_factor = options.inter_group_factor;
  using Key =
      std::tuple<std::vector<double>, std::int32_t, std::int32_t, std::int64_t, std::int64_t>;
  std::map<Key, int> known;
  for (const std::int32_t m : Travellers(plan)) {
    const PlanMatrix& matrix = plan.matrices[m];
    if (!GetsOwner(plan.topology.grid, plan.strategy, matrix)) continue;
    MatrixClass cls;
    // A bucket is not for batches with others.
    cls.batch_costs = options.batch_costs.empty() || matrix.bucket >= 0
                          ? std::vector<double>{CostOfTraveller(plan, options, m)}
                          : options.batch_costs[options.matrix_table[m]];
    cls.period = matrix.period;
    cls.phase = matrix.phase;
    for (const std::int32_t each : TravelsWith(plan, m)) {
      const PlanMatrix& its = plan.matrices[each];
      if (problem.state_bytes_cap > 0) {
        cls.state_bytes += its.rows * its.cols * its.state_bytes_per_element;
      }
      if (has_inter_groups && TwoLevel(problem.grid)) cls.inter_bytes += InterBytes(plan, its);
    }
    const auto [place, is_new] =
        known.emplace(Key{cls.batch_costs, cls.period, cls.phase, cls.state_bytes, cls.inter_bytes},
                      static_cast<int>(known.size()));
    if (is_new) problem.classes.push_back(std::move(cls));
    problem.class_of.push_back(place->second);
    problem.names.push_back(matrix.name);
    if (!options.layers.empty()) problem.layers.push_back(options.layers[m]);
    posed.matrices.push_back(m);
  }
  return posed;
}

}  // namespace weft::scheduler
