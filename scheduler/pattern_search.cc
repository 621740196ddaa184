#include "scheduler/pattern_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "scheduler/greedy.h"
#include "scheduler/pattern_master.h"
#include "scheduler/pattern_placement.h"
#include "scheduler/patterns.h"

namespace weft::scheduler {
namespace {

constexpr int kMostTargets = 16;
constexpr int kMostPatterns = 3000;
constexpr int kMostRounds = 400;
constexpr double kNoLimit = 1e9;

class Search {
 public:
  Search(const AssignmentProblem& problem, const RunCosts& costs,
         const PatternSearchOptions& options, RankLoads loads, double lower_bound)
      : problem_(problem),
        costs_(costs),
        options_(options),
        sizes_(ClassSizes(problem)),
        best_(std::move(loads)),
        lower_bound_(lower_bound),
        makespan_(best_.Makespan()) {}

  PatternSearchResult Run() {
    double tried = lower_bound_;
    int targets = 0;
    while (targets < kMostTargets && !Close(lower_bound_, options_.gap)) {
      const double first = lower_bound_ * (1 + options_.gap);
      const double target = targets == 0 ? first : (tried + makespan_) / 2;
      // Nothing worth finding lies between what was tried in vain and what is had.
      if (targets > 0 && Close(tried, options_.gap / 4)) break;
      if (SecondsLeft() <= 0) {
        out_of_time_ = true;
        break;
      }
      ++targets;
      if (Try(target)) lower_bound_ = std::max(lower_bound_, target);
      if (makespan_ > target) tried = std::max(tried, target);
      if (out_of_time_) break;
    }
    return {std::move(best_), lower_bound_, targets, out_of_time_};
  }

 private:
  bool Close(double to, double gap) const { return makespan_ <= to * (1 + gap); }

  double SecondsLeft() const { return options_.seconds_left ? options_.seconds_left() : kNoLimit; }

  // Patterns of one target, each once.
  struct Columns {
    std::map<Holding, int> index;
    std::vector<Holding> patterns;
    std::unique_ptr<PatternMaster> master;

    int Add(const Holding& pattern) {
      const auto [place, is_new] = index.emplace(pattern, static_cast<int>(patterns.size()));
      if (is_new) {
        patterns.push_back(pattern);
        master->AddPattern(pattern);
      }
      return place->second;
    }
  };

  // Looks for an assignment under `target` and keeps what is better than the best so far. True if
  // there is none under `target`.
  bool Try(double target) {
    const PatternSpace space(problem_, costs_, target);
    Columns columns;
    columns.master = PatternMaster::Create(Master());
    std::vector<int> start;
    for (int rank = 0; rank < best_.ranks(); ++rank) {
      const int index = columns.Add(Trim(space, best_.holding(rank)));
      start.resize(columns.patterns.size(), 0);
      ++start[index];
    }
    const std::optional<std::vector<Holding>> all = space.Enumerate(kMostPatterns);
    if (all) {
      for (const Holding& pattern : *all) columns.Add(pattern);
    }
    if (Generate(space, columns)) return true;
    if (out_of_time_) return false;
    start.resize(columns.patterns.size(), 0);
    const PatternMaster::Result result =
        columns.master->Solve(start, options_.most_nodes, SecondsLeft());
    out_of_time_ = out_of_time_ || result.out_of_time;
    Keep(columns.patterns, result.uses);
    return all && result.optimal && result.objective > kLeastWeight / 2;
  }

  MasterInput Master() const {
    MasterInput input;
    input.sizes = sizes_;
    input.ranks = problem_.grid.size();
    double dearest = 0;
    for (int cls = 0; cls < costs_.classes(); ++cls) {
      dearest = std::max(dearest, costs_.LeastAtAll(cls));
      input.exactly = input.exactly || !costs_.Monotone(cls);
    }
    for (int cls = 0; cls < costs_.classes(); ++cls) {
      const double weight = dearest > 0 ? costs_.LeastAtAll(cls) / dearest : 1;
      input.weights.push_back(std::max(weight, kLeastWeight));
    }
    return input;
  }

  // Far above the gap that the master allows.
  static constexpr double kLeastWeight = 1e-3;

  // The holding with as little as possible taken away so that it is a pattern of `space`.
  Holding Trim(const PatternSpace& space, Holding holding) const {
    while (!space.Contains(holding)) {
      std::size_t chosen = 0;
      double chosen_load = -1;
      bool chosen_fits = false;
      for (std::size_t i = 0; i < holding.size(); ++i) {
        Holding less = holding;
        --less[i].second;
        const double load = costs_.Of(less);
        const bool fits = space.Contains(less);
        const bool better = chosen_load < 0 || (fits != chosen_fits ? fits
                                                : fits              ? load > chosen_load
                                                                    : load < chosen_load);
        if (!better) continue;
        chosen = i;
        chosen_load = load;
        chosen_fits = fits;
      }
      if (--holding[chosen].second == 0) holding.erase(holding.begin() + chosen);
    }
    return holding;
  }

  // Adds the pattern that the relaxation misses most until it misses none. True if that proves that
  // something is always left over.
  bool Generate(const PatternSpace& space, Columns& columns) {
    for (int round = 0; round < kMostRounds; ++round) {
      if (SecondsLeft() <= 0) {
        out_of_time_ = true;
        return false;
      }
      const PatternMaster::Relaxation relaxation = columns.master->SolveRelaxation();
      constexpr double kNothing = 1e-7;
      if (!relaxation.solved || relaxation.objective < kNothing) return false;
      const PatternSpace::Priced priced = space.Best(relaxation.class_values);
      double value = 0, scale = 0;
      for (int cls = 0; cls < costs_.classes(); ++cls) {
        value += relaxation.class_values[cls] * sizes_[cls];
        scale += std::abs(relaxation.class_values[cls]) * sizes_[cls];
      }
      // For any values not above the weights this much is left over at least, whatever the solver
      // of the relaxation may have got wrong.
      const double left_over = value - problem_.grid.size() * priced.value;
      constexpr double kProof = 1e-7;
      if (priced.exact && left_over > kProof * scale) return true;
      const double per_rank = (value - relaxation.objective) / problem_.grid.size();
      if (priced.value <= per_rank * (1 + kNothing)) return false;
      const std::size_t before = columns.patterns.size();
      columns.Add(priced.pattern);
      if (columns.patterns.size() == before) return false;
    }
    return false;
  }

  void Keep(const std::vector<Holding>& patterns, const std::vector<int>& uses) {
    std::vector<Holding> chosen;
    for (std::size_t p = 0; p < patterns.size(); ++p) {
      for (int use = 0; use < uses[p]; ++use) chosen.push_back(patterns[p]);
    }
    // A solver's tolerance must not become a rank too many.
    if (static_cast<int>(chosen.size()) > problem_.grid.size()) return;
    std::optional<RankLoads> loads = PlacePatterns(problem_, costs_, std::move(chosen));
    if (!loads) return;
    Improve(lower_bound_ * (1 + options_.gap), *loads);
    if (loads->Makespan() >= makespan_) return;
    makespan_ = loads->Makespan();
    best_ = *std::move(loads);
  }

  const AssignmentProblem& problem_;
  const RunCosts& costs_;
  const PatternSearchOptions& options_;
  const std::vector<int> sizes_;
  RankLoads best_;
  double lower_bound_;
  double makespan_;
  bool out_of_time_ = false;
};

}  // namespace

PatternSearchResult SearchPatterns(const AssignmentProblem& problem, const RunCosts& costs,
                                   const PatternSearchOptions& options, RankLoads loads,
                                   double lower_bound) {
  return Search(problem, costs, options, std::move(loads), lower_bound).Run();
}

}  // namespace weft::scheduler
