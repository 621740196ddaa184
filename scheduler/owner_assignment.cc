#include "scheduler/owner_assignment.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/assignment.h"
#include "scheduler/load_search.h"
#include "scheduler/pattern_placement.h"
#include "scheduler/rank_loads.h"
#include "scheduler/run_costs.h"

namespace weft::scheduler {
namespace {

// What no assignment can keep.
absl::Status CheckPossible(const AssignmentProblem& problem) {
  const std::int64_t cap = problem.state_bytes_cap;
  const double inter_cap = InterBytesCap(problem);
  std::int64_t total = 0;
  for (std::size_t m = 0; m < problem.class_of.size(); ++m) {
    const MatrixClass& cls = problem.classes[problem.class_of[m]];
    if (cap > 0 && cls.state_bytes > cap) {
      return absl::FailedPreconditionError(
          absl::StrCat(NameOf(problem, static_cast<int>(m)), " has ", cls.state_bytes,
                       " bytes of optimizer state, and a rank may own ", cap, "."));
    }
    if (static_cast<double>(cls.inter_bytes) > inter_cap) {
      return absl::FailedPreconditionError(
          absl::StrCat(NameOf(problem, static_cast<int>(m)), " carries ", cls.inter_bytes,
                       " bytes between nodes, and an inter group may carry ", inter_cap,
                       " under the factor ", problem.inter_group_factor, "."));
    }
    total += cls.state_bytes;
  }
  if (cap > 0 && total > 0 && (total - 1) / problem.grid.size() >= cap) {
    return absl::FailedPreconditionError(
        absl::StrCat("the matrices have ", total, " bytes of optimizer state, and ",
                     problem.grid.size(), " ranks may own ", cap, " each."));
  }
  return absl::OkStatus();
}

// Owners with the holdings of `loads`: each class is dealt in use order, round the ranks that have
// some of it left.
std::vector<int> Deal(const AssignmentProblem& problem, const RankLoads& loads) {
  const int ranks = loads.ranks();
  std::vector<std::map<int, int>> left(problem.classes.size());  // by place in spread order
  for (int place = 0; place < ranks; ++place) {
    for (const auto& [cls, count] : loads.holding(SpreadRank(problem.grid, place))) {
      left[cls][place] = count;
    }
  }
  std::vector<int> want(problem.classes.size(), 0);
  std::vector<int> owners;
  for (int cls : problem.class_of) {
    auto place = left[cls].lower_bound(want[cls]);
    if (place == left[cls].end()) place = left[cls].begin();
    owners.push_back(SpreadRank(problem.grid, place->first));
    want[cls] = place->first + 1;
    if (--place->second == 0) left[cls].erase(place);
  }
  return owners;
}

}  // namespace

absl::StatusOr<OwnerAssignment> SolveAssignment(const AssignmentProblem& problem,
                                                const SolverOptions& options) {
  // The limit is one for everything, though only the program ends by it.
  const LoadSearch search(options);
  WEFT_RETURN_IF_ERROR(CheckPossible(problem));
  const RunCosts costs(problem);
  WEFT_ASSIGN_OR_RETURN(FoundLoads found, search.Run(problem, costs));
  OwnerAssignment result;
  result.report = found.report;
  result.owners = found.owners.empty() ? Deal(problem, found.loads) : std::move(found.owners);
  const std::vector<int> rank_for = BalanceGroups(problem, found.loads);
  for (int& owner : result.owners) owner = rank_for[owner];
  SpreadOwners(problem.class_of, problem.grid, result.owners);
  if (!problem.layers.empty()) {
    SpreadLayers(problem.class_of, problem.layers, problem.grid, result.owners);
  }
  result.batches = BatchesOf(problem, result.owners);
  return result;
}

std::vector<OwnerBatch> BatchesOf(const AssignmentProblem& problem,
                                  const std::vector<int>& owners) {
  const RunCosts costs(problem);
  std::map<std::pair<int, int>, std::vector<std::int32_t>> held;  // by rank and class
  for (std::size_t m = 0; m < owners.size(); ++m) {
    held[{owners[m], problem.class_of[m]}].push_back(static_cast<std::int32_t>(m));
  }
  std::vector<OwnerBatch> batches;
  for (const auto& [key, matrices] : held) {
    auto next = matrices.begin();
    for (int size : costs.Batches(key.second, static_cast<int>(matrices.size()))) {
      batches.push_back({key.first, {next, next + size}});
      next += size;
    }
  }
  std::sort(batches.begin(), batches.end(), [](const OwnerBatch& a, const OwnerBatch& b) {
    return std::pair(a.rank, a.matrices[0]) < std::pair(b.rank, b.matrices[0]);
  });
  return batches;
}

absl::Status CheckCaps(const AssignmentProblem& problem, const std::vector<int>& owners) {
  const RunCosts costs(problem);
  const RankLoads loads = LoadsOf(problem, costs, owners);
  for (int rank = 0; problem.state_bytes_cap > 0 && rank < loads.ranks(); ++rank) {
    if (loads.state_bytes(rank) <= problem.state_bytes_cap) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " would own ", loads.state_bytes(rank),
                     " bytes of optimizer state, and may own ", problem.state_bytes_cap, "."));
  }
  const double cap = InterBytesCap(problem);
  for (int local = 0; local < problem.grid.ranks_per_node; ++local) {
    if (loads.inter_bytes(local) <= cap) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "inter group ", local, " would carry ", loads.inter_bytes(local), " bytes, and may carry ",
        cap, " under the factor ", problem.inter_group_factor, "."));
  }
  return absl::OkStatus();
}

}  // namespace weft::scheduler
