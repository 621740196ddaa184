#include "weft/strategy_switch.h"

#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "weft/topology.h"

namespace weft {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Search {
 public:
  Search(const CostModel& model, const PlanMakerOn& make, const TrainerModel& trainer,
         absl::Span<const std::optional<OwnedWork>> work)
      : model_(model), make_(make), trainer_(trainer), work_(work) {}

  absl::Status Look(int nodes) {
    if (points_.count(nodes) > 0) return absl::OkStatus();
    Topology topology = model_.topology();
    topology.grid.nodes = nodes;
    const CostModel model = model_.On(topology);
    SwitchPoint point{nodes, kNever, kNever};
    for (const auto& [strategy, seconds] : {std::pair(Strategy::kOwner, &point.owner_seconds),
                                            {Strategy::kNodeLocal, &point.node_local_seconds}}) {
      const absl::StatusOr<Plan> plan = make_(topology, strategy);
      if (!plan.ok()) {
        refused_ = plan.status();
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(const CyclePrediction cycle,
                            EvaluateCycle(*plan, model, trainer_, work_));
      *seconds = cycle.step_seconds;
    }
    feasible_ = feasible_ || point.owner_seconds < kNever || point.node_local_seconds < kNever;
    points_.emplace(nodes, point);
    return absl::OkStatus();
  }

  // Narrows a change between two numbers of nodes down to neighbours.
  absl::Status Narrow(int low, int high) {
    while (high - low > 1 && points_.at(low).Shorter() != points_.at(high).Shorter()) {
      const int middle = low + (high - low) / 2;
      WEFT_RETURN_IF_ERROR(Look(middle));
      (points_.at(middle).Shorter() == points_.at(low).Shorter() ? low : high) = middle;
    }
    return absl::OkStatus();
  }

  const std::map<int, SwitchPoint>& points() const { return points_; }
  // OK where some plan was made, else what the last one was refused with.
  absl::Status Feasible() const { return feasible_ ? absl::OkStatus() : refused_; }

 private:
  const CostModel& model_;
  const PlanMakerOn& make_;
  const TrainerModel& trainer_;
  const absl::Span<const std::optional<OwnedWork>> work_;
  std::map<int, SwitchPoint> points_;
  bool feasible_ = false;
  absl::Status refused_;
};

// 1, 2, 3, 4, 6, 8, 12, ..., most.
std::vector<int> NodeCounts(int most) {
  std::vector<int> counts = {1};
  for (std::int64_t power = 2; power <= most; power *= 2) {
    counts.push_back(static_cast<int>(power));
    if (power + power / 2 <= most) counts.push_back(static_cast<int>(power + power / 2));
  }
  if (counts.back() != most) counts.push_back(most);
  return counts;
}

std::string Reason(const StrategySwitch& found) {
  const int last = found.points.back().nodes;
  Strategy now = Strategy::kOwner;
  if (found.changes.empty()) {
    return absl::StrCat("owner is predicted to be no slower than node_local on 1 to ", last,
                        " nodes.");
  }
  std::string reason =
      absl::StrCat("owner is predicted to be no slower below ", found.changes.front(), " nodes");
  for (const int nodes : found.changes) {
    now = now == Strategy::kOwner ? Strategy::kNodeLocal : Strategy::kOwner;
    absl::StrAppend(&reason, ", ", std::string(Name(now)), " faster from ", nodes, " on");
  }
  return absl::StrCat(reason, "; looked at up to ", last, ".");
}

}  // namespace

absl::StatusOr<StrategySwitch> FindSwitch(const CostModel& model, int most_nodes,
                                          const PlanMakerOn& make, const TrainerModel& trainer,
                                          absl::Span<const std::optional<OwnedWork>> work) {
  const int ranks_per_node = model.topology().grid.ranks_per_node;
  if (most_nodes < 1 || most_nodes > kMostRanks / ranks_per_node) {
    return absl::InvalidArgumentError(
        absl::StrCat("the switch is looked for on 1 to ", kMostRanks / ranks_per_node, " nodes of ",
                     ranks_per_node, " ranks, not up to ", most_nodes, "."));
  }
  Search search(model, make, trainer, work);
  const std::vector<int> counts = NodeCounts(most_nodes);
  for (const int nodes : counts) WEFT_RETURN_IF_ERROR(search.Look(nodes));
  WEFT_RETURN_IF_ERROR(search.Feasible());
  for (std::size_t i = 1; i < counts.size(); ++i) {
    WEFT_RETURN_IF_ERROR(search.Narrow(counts[i - 1], counts[i]));
  }
  StrategySwitch found;
  Strategy now = Strategy::kOwner;
  for (const auto& [nodes, point] : search.points()) {
    found.points.push_back(point);
    if (point.Shorter() == now) continue;
    now = point.Shorter();
    found.changes.push_back(nodes);
  }
  if (now == Strategy::kNodeLocal) found.nodes = found.changes.back();
  found.reason = Reason(found);
  return found;
}

absl::StatusOr<StrategySwitch> FindSwitch(const PlanRequest& request, const CostModel& model,
                                          int most_nodes, const TrainerModel& trainer,
                                          absl::Span<const std::optional<OwnedWork>> work) {
  const auto make = [&](const Topology& topology, Strategy strategy) {
    PlanRequest asked = request;
    asked.topology = topology;
    asked.strategy = strategy;
    asked.forms = ChooseForms(model.On(topology));
    asked.ownership.owners.clear();
    for (PlanMatrix& matrix : asked.matrices) {
      if (strategy != Strategy::kOwner) matrix.pass_through = false;
      if (topology.grid != request.topology.grid) matrix.shard_rows.clear();
    }
    return BuildPlan(asked);
  };
  return FindSwitch(model, most_nodes, make, trainer, work);
}

}  // namespace weft
