#include "scheduler/rank_ops.h"

#include "scheduler/buffers.h"

namespace weft::scheduler {

RankOps::RankOps(const Plan& plan)
    : plan_(plan),
      groups_(plan),
      shared_(SharedBuffers(plan)),
      lists_(plan.ops.size()),
      last_rank_(plan.ops.size(), -1) {
  const auto add = [&](const Access& access) { touches_.push_back(TouchOf(access)); };
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    Lists& lists = lists_[i];
    lists.lane = op.lane;
    if (IsExchange(plan, op)) {
      lists.exchange = static_cast<std::int32_t>(exchanges_.size());
      exchanges_.emplace_back();
      continue;
    }
    const auto always = [](bool root) { return [root](std::int32_t) { return root; }; };
    lists.begin = static_cast<std::uint32_t>(touches_.size());
    if (op.root >= 0) ForEachAccess(plan, op, always(true), add);
    lists.others = static_cast<std::uint32_t>(touches_.size());
    ForEachAccess(plan, op, always(false), add);
    lists.end = static_cast<std::uint32_t>(touches_.size());
  }
}

Touch RankOps::TouchOf(const Access& access) const {
  Touch touch{.place = static_cast<std::int32_t>(ResourceIndex(access)),
              .reads = access.reads,
              .writes = access.writes};
  if (access.matrix < 0 || access.resource >= kSlotCount) return touch;
  const PlanMatrix& matrix = plan_.matrices[access.matrix];
  const Slot slot = static_cast<Slot>(access.resource);
  const std::int32_t buffer = matrix.buffers[static_cast<std::size_t>(slot)];
  if (buffer >= 0 && shared_[buffer]) touch.buffer = buffer;
  touch.occupant = OccupantOf(plan_, access.matrix, slot);
  if (slot == Slot::kWeight && matrix.layout == Layout::kOwned) touch.keeper = matrix.owner;
  return touch;
}

void RankOps::Begin(int rank) {
  rank_ = rank;
  order_.clear();
  for (const std::vector<std::int32_t>& lane : plan_.lanes[rank]) {
    const auto sorted = static_cast<std::ptrdiff_t>(order_.size());
    order_.insert(order_.end(), lane.begin(), lane.end());
    std::inplace_merge(order_.begin(), order_.begin() + sorted, order_.end());
  }
  items_.clear();
  for (std::int32_t index : order_) {
    last_rank_[index] = rank;
    const Lists& lists = lists_[index];
    if (lists.exchange >= 0) {
      std::vector<Touch>& touches = exchanges_[lists.exchange];
      touches.clear();
      ForEachAccess(
          plan_, plan_.ops[index], [&](std::int32_t m) { return plan_.matrices[m].owner == rank; },
          [&](const Access& access) { touches.push_back(TouchOf(access)); });
      items_.push_back({index, lists.lane, touches});
      continue;
    }
    const bool root = lists.begin < lists.others && groups_.IsRoot(plan_.ops[index], rank);
    const std::uint32_t begin = root ? lists.begin : lists.others;
    const std::uint32_t end = root ? lists.others : lists.end;
    items_.push_back({index, lists.lane, absl::MakeConstSpan(&touches_[begin], end - begin)});
  }
}

StepOp RankOps::At(int lane, std::int32_t place) const {
  const std::vector<std::int32_t>& list = plan_.lanes[rank_][lane];
  const auto size = static_cast<std::int32_t>(list.size());
  return place <= size ? StepOp{0, list[place - 1]} : StepOp{1, list[place - 1 - size]};
}

}  // namespace weft::scheduler
