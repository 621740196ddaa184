#include "scheduler/load_search.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/greedy.h"
#include "scheduler/pattern_master.h"
#include "weft/plan.h"

namespace weft::scheduler {
namespace {

// The steps t with (t - phase) mod period = 0.
struct Steps {
  std::int64_t period = 1;
  std::int64_t phase = 0;

  bool Have(std::int64_t step) const { return (step - phase) % period == 0; }
  bool Meet(const Steps& other) const {
    return (phase - other.phase) % std::gcd(period, other.period) == 0;
  }
  auto operator<=>(const Steps&) const = default;
};

// The same problem with those matrices alone whose costs fall in the same steps, and no caps.
std::map<Steps, AssignmentProblem> BySteps(const AssignmentProblem& problem) {
  std::map<Steps, AssignmentProblem> parts;
  for (const int cls : problem.class_of) {
    AssignmentProblem& part = parts[{problem.classes[cls].period, problem.classes[cls].phase}];
    part.class_of.push_back(cls);
  }
  for (auto& [steps, part] : parts) {
    part.grid = problem.grid;
    part.classes = problem.classes;
  }
  return parts;
}

// What has been placed of the matrices with costs in some steps.
struct Placed {
  std::vector<double> load;  // by rank
  double mean = 0;
  AssignmentReport report;
};

// Gives the holdings of `found` to ranks: the fullest to the one that has least in the steps of
// both, then least in all.
std::vector<double> Place(const Steps& steps, const RankLoads& found,
                          const std::map<Steps, Placed>& placed, RankLoads& loads) {
  const int ranks = found.ranks();
  std::vector<int> from(ranks);
  std::iota(from.begin(), from.end(), 0);
  std::stable_sort(from.begin(), from.end(),
                   [&](int a, int b) { return found.load(a) > found.load(b); });
  std::vector<std::tuple<double, double, int>> to;
  for (int rank = 0; rank < ranks; ++rank) {
    double met = 0, mean = 0;
    for (const auto& [other, part] : placed) {
      if (steps.Meet(other)) met += part.load[rank];
      mean += part.load[rank] / static_cast<double>(other.period);
    }
    to.emplace_back(met, mean, rank);
  }
  std::sort(to.begin(), to.end());
  std::vector<double> load(ranks);
  for (int i = 0; i < ranks; ++i) {
    const int rank = std::get<2>(to[i]);
    load[rank] = found.load(from[i]);
    for (const auto& [cls, count] : found.holding(from[i])) loads.Add(rank, cls, count);
  }
  return load;
}

// Of the step that has most.
void ReportStep(const std::map<Steps, Placed>& placed, int ranks, AssignmentReport& report) {
  std::int64_t cycle = 1;
  for (const auto& [steps, part] : placed) {
    cycle = std::min(std::lcm(cycle, steps.period), kMostCycleSteps);
  }
  for (std::int64_t step = 0; step < cycle; ++step) {
    std::vector<double> load(ranks);
    double mean = 0, least = 0, longest_first = 0, local_search = 0;
    for (const auto& [steps, part] : placed) {
      if (!steps.Have(step)) continue;
      for (int rank = 0; rank < ranks; ++rank) load[rank] += part.load[rank];
      mean += part.mean;
      least = std::max(least, part.report.lower_bound);
      // As if the fullest ranks of all parts were one.
      longest_first += part.report.longest_first;
      local_search += part.report.local_search;
    }
    const double makespan = *std::max_element(load.begin(), load.end());
    if (makespan <= report.makespan) continue;
    report.makespan = makespan;
    report.lower_bound = std::max(mean, least);
    report.longest_first = std::max(makespan, longest_first);
    report.local_search = std::max(makespan, local_search);
  }
}

}  // namespace

LoadSearch::LoadSearch(const SolverOptions& options) : options_(options) {
  patterns_.gap = options.gap;
  patterns_.most_nodes = options.most_nodes;
  if (options.clock != nullptr) {
    const Nanos deadline = options.clock->Now() + options.limit;
    patterns_.seconds_left = [clock = options.clock, deadline] {
      return static_cast<double>(deadline - clock->Now()) * 1e-9;
    };
  }
}

absl::StatusOr<FoundLoads> LoadSearch::Run(const AssignmentProblem& problem,
                                           const RunCosts& costs) const {
  const auto other_steps = [&](int cls) {
    const MatrixClass& first = problem.classes[problem.class_of[0]];
    return problem.classes[cls].period != first.period || problem.classes[cls].phase != first.phase;
  };
  if (std::any_of(problem.class_of.begin(), problem.class_of.end(), other_steps)) {
    WEFT_ASSIGN_OR_RETURN(FoundLoads found, RunByStep(problem, costs));
    if (found.loads.KeepCaps()) return found;
  }
  return RunInOneStep(problem, costs);
}

absl::StatusOr<FoundLoads> LoadSearch::RunInOneStep(const AssignmentProblem& problem,
                                                    const RunCosts& costs) const {
  LongestFirstResult first = LongestFirst(problem, costs);
  if (first.unplaced >= 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no rank has room for ", NameOf(problem, first.unplaced), ": ", problem.grid.size(),
        " ranks may own ", problem.state_bytes_cap, " bytes of optimizer state each",
        problem.inter_group_factor > 0 ? absl::StrCat(", and an inter group may carry ",
                                                      problem.inter_group_factor, " times the mean")
                                       : "",
        "."));
  }
  FoundLoads found{LoadsOf(problem, costs, first.owners), std::move(first.owners), {}};
  AssignmentReport& report = found.report;
  report.milp_available = PatternMaster::Available();
  report.lower_bound = costs.LowerBound(problem.grid.size());
  report.makespan = report.longest_first = report.local_search = found.loads.Makespan();
  const auto close = [&] { return report.makespan <= report.lower_bound * (1 + options_.gap); };

  if (!close()) {
    RankLoads improved = found.loads;
    Improve(report.lower_bound * (1 + options_.gap), improved);
    if (improved.Makespan() < report.makespan) {
      report.taken = AssignmentMethod::kLocalSearch;
      report.makespan = report.local_search = improved.Makespan();
      found.loads = std::move(improved);
    }
  }
  if (!close() && options_.milp && report.milp_available) {
    PatternSearchResult searched =
        SearchPatterns(problem, costs, patterns_, found.loads, report.lower_bound);
    report.milp_ran = true;
    report.targets = searched.targets;
    report.out_of_time = searched.out_of_time;
    report.lower_bound = searched.lower_bound;
    if (searched.loads.Makespan() < report.makespan) {
      report.taken = AssignmentMethod::kMilp;
      report.makespan = searched.loads.Makespan();
      found.loads = std::move(searched.loads);
    }
  }
  if (report.taken != AssignmentMethod::kLongestFirst) found.owners.clear();
  return found;
}

absl::StatusOr<FoundLoads> LoadSearch::RunByStep(const AssignmentProblem& problem,
                                                 const RunCosts& costs) const {
  FoundLoads all{RankLoads(problem, costs), {}, {}};
  AssignmentReport& report = all.report;
  report.milp_available = PatternMaster::Available();
  std::map<Steps, Placed> placed;
  for (const auto& [steps, part] : BySteps(problem)) {
    const RunCosts its_costs(part);
    WEFT_ASSIGN_OR_RETURN(const FoundLoads found, RunInOneStep(part, its_costs));
    std::vector<double> load = Place(steps, found.loads, placed, all.loads);
    placed[steps] = {std::move(load), its_costs.Mean(problem.grid.size()), found.report};
    report.taken = std::max(report.taken, found.report.taken);
    report.milp_ran |= found.report.milp_ran;
    report.targets += found.report.targets;
    report.out_of_time |= found.report.out_of_time;
  }
  ReportStep(placed, problem.grid.size(), report);
  return all;
}

}  // namespace weft::scheduler
