#include "scheduler/owner_assignment.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/assignment.h"
#include "scheduler/greedy.h"
#include "scheduler/pattern_master.h"
#include "scheduler/pattern_placement.h"
#include "scheduler/pattern_search.h"
#include "scheduler/rank_loads.h"
#include "scheduler/run_costs.h"

namespace weft::scheduler {
namespace {

std::string Named(const AssignmentProblem& problem, int matrix) {
  return problem.names.empty() ? absl::StrCat("matrix number ", matrix)
                               : absl::StrCat("matrix '", problem.names[matrix], "'");
}

// What no assignment can keep.
absl::Status CheckPossible(const AssignmentProblem& problem) {
  const std::int64_t cap = problem.state_bytes_cap;
  const double inter_cap = InterBytesCap(problem);
  std::int64_t total = 0;
  for (std::size_t m = 0; m < problem.class_of.size(); ++m) {
    const MatrixClass& cls = problem.classes[problem.class_of[m]];
    if (cap > 0 && cls.state_bytes > cap) {
      return absl::FailedPreconditionError(
          absl::StrCat(Named(problem, static_cast<int>(m)), " has ", cls.state_bytes,
                       " bytes of optimizer state, and a rank may own ", cap, "."));
    }
    if (static_cast<double>(cls.inter_bytes) > inter_cap) {
      return absl::FailedPreconditionError(
          absl::StrCat(Named(problem, static_cast<int>(m)), " carries ", cls.inter_bytes,
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

RankLoads LoadsOf(const AssignmentProblem& problem, const RunCosts& costs,
                  const std::vector<int>& owners) {
  RankLoads loads(problem, costs);
  for (std::size_t m = 0; m < owners.size(); ++m) loads.Add(owners[m], problem.class_of[m]);
  return loads;
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

PatternSearchOptions SearchOptions(const SolverOptions& options) {
  PatternSearchOptions search;
  search.gap = options.gap;
  search.most_nodes = options.most_nodes;
  if (options.clock != nullptr) {
    const Nanos deadline = options.clock->Now() + options.limit;
    search.seconds_left = [clock = options.clock, deadline] {
      return static_cast<double>(deadline - clock->Now()) * 1e-9;
    };
  }
  return search;
}

}  // namespace

absl::StatusOr<OwnerAssignment> SolveAssignment(const AssignmentProblem& problem,
                                                const SolverOptions& options) {
  // The limit is one for everything, though only the program ends by it.
  const PatternSearchOptions search = SearchOptions(options);
  WEFT_RETURN_IF_ERROR(CheckPossible(problem));
  const RunCosts costs(problem);
  LongestFirstResult first = LongestFirst(problem, costs);
  if (first.unplaced >= 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no rank has room for ", Named(problem, first.unplaced), ": ", problem.grid.size(),
        " ranks may own ", problem.state_bytes_cap, " bytes of optimizer state each",
        problem.inter_group_factor > 0 ? absl::StrCat(", and an inter group may carry ",
                                                      problem.inter_group_factor, " times the mean")
                                       : "",
        "."));
  }
  OwnerAssignment result;
  AssignmentReport& report = result.report;
  report.milp_available = PatternMaster::Available();
  report.lower_bound = costs.LowerBound(problem.grid.size());
  result.owners = std::move(first.owners);
  RankLoads loads = LoadsOf(problem, costs, result.owners);
  report.makespan = report.longest_first = report.local_search = loads.Makespan();
  const auto close = [&] { return report.makespan <= report.lower_bound * (1 + options.gap); };

  if (!close()) {
    RankLoads improved = loads;
    Improve(report.lower_bound * (1 + options.gap), improved);
    if (improved.Makespan() < report.makespan) {
      report.taken = AssignmentMethod::kLocalSearch;
      report.makespan = report.local_search = improved.Makespan();
      loads = std::move(improved);
    }
  }
  if (!close() && options.milp && report.milp_available) {
    PatternSearchResult found = SearchPatterns(problem, costs, search, loads, report.lower_bound);
    report.milp_ran = true;
    report.targets = found.targets;
    report.out_of_time = found.out_of_time;
    report.lower_bound = found.lower_bound;
    if (found.loads.Makespan() < report.makespan) {
      report.taken = AssignmentMethod::kMilp;
      report.makespan = found.loads.Makespan();
      loads = std::move(found.loads);
    }
  }
  if (report.taken != AssignmentMethod::kLongestFirst) result.owners = Deal(problem, loads);
  const std::vector<int> rank_for = BalanceGroups(problem, loads);
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
