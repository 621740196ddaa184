#include "scheduler/rank_loads.h"

#include <algorithm>

namespace weft::scheduler {

namespace {

Holding::const_iterator Find(const Holding& holding, int cls) {
  return std::lower_bound(holding.begin(), holding.end(), cls,
                          [](const std::pair<int, int>& entry, int c) { return entry.first < c; });
}

}  // namespace

RankLoads::RankLoads(const AssignmentProblem& problem, const RunCosts& costs)
    : problem_(&problem),
      costs_(&costs),
      inter_cap_(InterBytesCap(problem)),
      holdings_(problem.grid.size()),
      loads_(problem.grid.size(), 0.0),
      state_bytes_(problem.grid.size(), 0),
      inter_bytes_(problem.grid.ranks_per_node, 0.0) {}

int RankLoads::Count(int rank, int cls) const {
  const auto found = Find(holdings_[rank], cls);
  return found == holdings_[rank].end() || found->first != cls ? 0 : found->second;
}

double RankLoads::LoadWith(int rank, int cls) const {
  const int count = Count(rank, cls);
  return loads_[rank] - costs_->Of(cls, count) + costs_->Of(cls, count + 1);
}

double RankLoads::LoadWithout(int rank, int cls) const {
  const int count = Count(rank, cls);
  return loads_[rank] - costs_->Of(cls, count) + costs_->Of(cls, count - 1);
}

double RankLoads::Makespan() const { return *std::max_element(loads_.begin(), loads_.end()); }

bool RankLoads::Fits(int rank, int cls, int leaving, int from) const {
  const MatrixClass& more = problem_->classes[cls];
  if (problem_->state_bytes_cap > 0) {
    const std::int64_t less = leaving < 0 ? 0 : problem_->classes[leaving].state_bytes;
    if (state_bytes_[rank] - less + more.state_bytes > problem_->state_bytes_cap) return false;
  }
  if (problem_->inter_group_factor == 0) return true;
  const int group = problem_->grid.local_of(rank);
  // What changes places inside a group leaves its traffic as it is.
  if (from >= 0 && problem_->grid.local_of(from) == group) return true;
  const double less = leaving < 0 ? 0 : static_cast<double>(problem_->classes[leaving].inter_bytes);
  return inter_bytes_[group] - less + static_cast<double>(more.inter_bytes) <= inter_cap_;
}

bool RankLoads::KeepCaps() const {
  const std::int64_t cap = problem_->state_bytes_cap;
  return (cap == 0 || *std::max_element(state_bytes_.begin(), state_bytes_.end()) <= cap) &&
         *std::max_element(inter_bytes_.begin(), inter_bytes_.end()) <= inter_cap_;
}

void RankLoads::Add(int rank, int cls, int count) { Change(rank, cls, count); }

void RankLoads::Remove(int rank, int cls) { Change(rank, cls, -1); }

void RankLoads::Change(int rank, int cls, int by) {
  Holding& holding = holdings_[rank];
  auto place = holding.begin() + (Find(holding, cls) - holding.cbegin());
  if (place == holding.end() || place->first != cls) place = holding.insert(place, {cls, 0});
  place->second += by;
  if (place->second == 0) holding.erase(place);
  // Anew, so that a load never depends on the way that led to the holding.
  loads_[rank] = costs_->Of(holding);
  state_bytes_[rank] += by * problem_->classes[cls].state_bytes;
  inter_bytes_[problem_->grid.local_of(rank)] +=
      by * static_cast<double>(problem_->classes[cls].inter_bytes);
}

RankLoads LoadsOf(const AssignmentProblem& problem, const RunCosts& costs,
                  const std::vector<int>& owners) {
  RankLoads loads(problem, costs);
  for (std::size_t m = 0; m < owners.size(); ++m) loads.Add(owners[m], problem.class_of[m]);
  return loads;
}

}  // namespace weft::scheduler
