#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/groups.h"
#include "scheduler/validator.h"

namespace weft::scheduler {
namespace {

std::string LaneText(int lane) { return std::string(Name(static_cast<Lane>(lane))); }

absl::Status NameMissing(const Plan& plan, std::int32_t index) {
  const int lane = static_cast<int>(plan.ops[index].lane);
  for (const std::vector<int>& part : plan.groups[plan.ops[index].group].parts) {
    for (int rank : part) {
      const std::vector<std::int32_t>& list = plan.lanes[rank][lane];
      if (std::find(list.begin(), list.end(), index) == list.end()) {
        return InvalidPlan(DescribeOp(plan, index, rank), " is missing from the ", LaneText(lane),
                           " lane of rank ", rank);
      }
    }
  }
  return InvalidPlan(DescribeOp(plan, index), " is missing somewhere");
}

absl::Status CheckMembership(const Plan& plan) {
  const int world = plan.topology.grid.size();
  const GroupIndex groups(plan);
  std::vector<int> last_rank(plan.ops.size(), -1);
  std::vector<std::int64_t> seen(plan.ops.size(), 0);
  for (int rank = 0; rank < world; ++rank) {
    for (int lane = 0; lane < kLaneCount; ++lane) {
      for (std::int32_t index : plan.lanes[rank][lane]) {
        if (index < 0 || static_cast<std::size_t>(index) >= plan.ops.size()) {
          return InvalidPlan("rank ", rank, " lists op ", index, ", which does not exist");
        }
        const Op& op = plan.ops[index];
        if (static_cast<int>(op.lane) != lane || groups.PartOf(op.group, rank) < 0) {
          return InvalidPlan(DescribeOp(plan, index), " does not belong on the ", LaneText(lane),
                             " lane of rank ", rank);
        }
        if (last_rank[index] == rank) {
          return InvalidPlan(DescribeOp(plan, index), " is twice on the ", LaneText(lane),
                             " lane of rank ", rank);
        }
        last_rank[index] = rank;
        ++seen[index];
      }
    }
  }
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    if (seen[i] != groups.members(plan.ops[i].group)) {
      return NameMissing(plan, static_cast<std::int32_t>(i));
    }
  }
  return absl::OkStatus();
}

// Compares every member's sequence with that of the first rank of its part.
absl::Status CheckSequences(const Plan& plan) {
  const GroupIndex groups(plan);
  // By group and part.
  std::vector<std::size_t> begin;
  std::size_t parts = 0;
  for (const Group& group : plan.groups) {
    begin.push_back(parts);
    parts += group.parts.size();
  }
  std::vector<std::vector<std::int32_t>> sequences(parts);
  std::vector<std::size_t> next(plan.groups.size());
  for (std::size_t r = 0; r < plan.lanes.size(); ++r) {
    const int rank = static_cast<int>(r);
    std::fill(next.begin(), next.end(), 0);
    for (const std::vector<std::int32_t>& lane : plan.lanes[rank]) {
      for (std::int32_t index : lane) {
        const Op& op = plan.ops[index];
        if (!IsCollective(op.kind)) continue;
        const std::int32_t part = groups.PartOf(op.group, rank);
        const int first = plan.groups[op.group].parts[part][0];
        std::vector<std::int32_t>& sequence = sequences[begin[op.group] + part];
        if (first == rank) {
          sequence.push_back(index);
          continue;
        }
        const std::int32_t expected = sequence[next[op.group]++];
        if (expected != index) {
          return InvalidPlan("rank ", rank, " has ", DescribeOp(plan, index, rank), " where rank ",
                             first, " has ", DescribeOp(plan, expected, rank));
        }
      }
    }
  }
  return absl::OkStatus();
}

bool KeepsGlobalOrder(const Plan& plan) {
  for (const auto& rank : plan.lanes) {
    for (const auto& lane : rank) {
      if (!std::is_sorted(lane.begin(), lane.end())) return false;
    }
  }
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    for (std::int32_t before : plan.ops[i].after) {
      if (before >= static_cast<std::int32_t>(i)) return false;
    }
  }
  return true;
}

// Runs the lanes as queues until they are empty or stuck.
class Rendezvous {
 public:
  explicit Rendezvous(const Plan& plan)
      : plan_(plan),
        groups_(plan),
        done_(plan.lanes.size(), std::vector<bool>(plan.ops.size())),
        next_(plan.lanes.size()),
        arrived_(plan.lanes.size()),
        arrivals_(plan.ops.size()) {
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      arrivals_[i].resize(plan.groups[plan.ops[i].group].parts.size());
    }
  }

  absl::Status Run() {
    for (std::size_t rank = 0; rank < plan_.lanes.size(); ++rank) {
      to_look_at_.push_back(static_cast<int>(rank));
    }
    while (!to_look_at_.empty()) {
      const int rank = to_look_at_.front();
      to_look_at_.pop_front();
      for (int lane = 0; lane < kLaneCount; ++lane) Look(rank, lane);
    }
    for (std::size_t rank = 0; rank < plan_.lanes.size(); ++rank) {
      for (int lane = 0; lane < kLaneCount; ++lane) {
        if (Head(static_cast<int>(rank), lane) >= 0) {
          return DescribeCycle({static_cast<int>(rank), lane});
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  using RankLane = std::pair<int, int>;

  const std::vector<int>& PartOf(int rank, std::int32_t index) const {
    const std::int32_t group = plan_.ops[index].group;
    return plan_.groups[group].parts[groups_.PartOf(group, rank)];
  }

  // -1 when the lane is empty.
  std::int32_t Head(int rank, int lane) const {
    const std::vector<std::int32_t>& list = plan_.lanes[rank][lane];
    return next_[rank][lane] < list.size() ? list[next_[rank][lane]] : -1;
  }

  // An op of this rank that its op `index` still has to wait for, or -1.
  std::int32_t Pending(int rank, std::int32_t index) const {
    for (std::int32_t before : plan_.ops[index].after) {
      if (groups_.PartOf(plan_.ops[before].group, rank) >= 0 && !done_[rank][before]) return before;
    }
    return -1;
  }

  void Look(int rank, int lane) {
    const std::int32_t index = Head(rank, lane);
    if (index < 0 || arrived_[rank][lane] || Pending(rank, index) >= 0) return;
    if (!IsCollective(plan_.ops[index].kind)) {
      Complete(rank, lane, index);
      return;
    }
    arrived_[rank][lane] = true;
    const std::vector<int>& members = PartOf(rank, index);
    if (++arrivals_[index][groups_.PartOf(plan_.ops[index].group, rank)] < members.size()) return;
    for (int member : members) {
      arrived_[member][lane] = false;
      Complete(member, lane, index);
    }
  }

  void Complete(int rank, int lane, std::int32_t index) {
    done_[rank][index] = true;
    ++next_[rank][lane];
    to_look_at_.push_back(rank);
  }

  // Whom the head of a stuck lane waits for.
  RankLane WaitsFor(RankLane at) const {
    const auto [rank, lane] = at;
    const std::int32_t index = Head(rank, lane);
    if (const std::int32_t before = Pending(rank, index); before >= 0) {
      return {rank, static_cast<int>(plan_.ops[before].lane)};
    }
    for (int member : PartOf(rank, index)) {
      if (!arrived_[member][lane] || Head(member, lane) != index) return {member, lane};
    }
    return at;
  }

  absl::Status DescribeCycle(RankLane at) const {
    std::vector<RankLane> chain;
    while (std::find(chain.begin(), chain.end(), at) == chain.end()) {
      chain.push_back(at);
      at = WaitsFor(at);
    }
    std::string text = "a cyclic wait:";
    for (auto it = std::find(chain.begin(), chain.end(), at); it != chain.end(); ++it) {
      absl::StrAppend(&text, " rank ", it->first, "'s ", LaneText(it->second), " lane stands at ",
                      DescribeOp(plan_, Head(it->first, it->second), it->first), " and waits for");
    }
    return InvalidPlan(text, " rank ", at.first, "'s ", LaneText(at.second), " lane");
  }

  const Plan& plan_;
  const GroupIndex groups_;
  std::vector<std::vector<bool>> done_;  // by rank and op
  std::vector<std::array<std::size_t, kLaneCount>> next_;
  std::vector<std::array<bool, kLaneCount>> arrived_;  // the lane's head waits for its peers
  std::vector<std::vector<std::size_t>> arrivals_;     // by op and part
  std::deque<int> to_look_at_;
};

}  // namespace

absl::Status CheckLanes(const Plan& plan) {
  WEFT_RETURN_IF_ERROR(CheckMembership(plan));
  return CheckSequences(plan);
}

absl::Status CheckOrder(const Plan& plan) {
  // An order that all lanes and dependencies keep is itself the proof that no wait is cyclic.
  if (KeepsGlobalOrder(plan)) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(Rendezvous(plan).Run());
  for (std::size_t rank = 0; rank < plan.lanes.size(); ++rank) {
    for (const auto& lane : plan.lanes[rank]) {
      const auto it = std::is_sorted_until(lane.begin(), lane.end());
      if (it != lane.end()) {
        return InvalidPlan("rank ", rank, " has ", DescribeOp(plan, *std::prev(it)), " before ",
                           DescribeOp(plan, *it), ", against the order of the plan");
      }
    }
  }
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    for (std::int32_t before : plan.ops[i].after) {
      if (before < static_cast<std::int32_t>(i)) continue;
      return InvalidPlan(DescribeOp(plan, static_cast<std::int32_t>(i)), " comes after ",
                         DescribeOp(plan, before), ", against the order of the plan");
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::scheduler
