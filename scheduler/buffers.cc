#include "scheduler/buffers.h"

#include <algorithm>

#include "weft/plan_cost.h"

namespace weft::scheduler {
namespace {

// As they lie in buffers that they share: by their indices, but in an exchange by their owners.
std::vector<std::int32_t> InMemoryOrder(const Plan& plan) {
  std::vector<std::int32_t> order;
  std::vector<bool> listed(plan.sets.size());
  for (std::size_t i = 0; i < plan.matrices.size(); ++i) {
    const std::int32_t set = plan.matrices[i].exchange;
    if (set < 0) {
      order.push_back(static_cast<std::int32_t>(i));
    } else if (!listed[set]) {
      listed[set] = true;
      order.insert(order.end(), plan.sets[set].begin(), plan.sets[set].end());
    }
  }
  return order;
}

}  // namespace

BufferSizes::BufferSizes(const Plan& plan)
    : plan_(plan),
      on_node_(plan.topology.grid.nodes),
      on_column_(plan.topology.grid.ranks_per_node),
      on_owner_(plan.topology.grid.size()),
      bytes_(plan.buffers),
      filled_(plan.sets.size() * kSlotCount) {
  for (const Op& op : plan.ops) {
    std::int64_t& scratch = scratch_[static_cast<std::size_t>(op.lane)];
    if (op.form == CollectiveForm::kSplit) scratch = std::max(scratch, PartBytes(plan, op));
  }
  for (std::int64_t bytes : scratch_) all_scratch_ += bytes;
  for (std::size_t m = 0; m < plan.matrices.size(); ++m) {
    extents_.emplace_back(plan, static_cast<std::int32_t>(m));
  }
  for (const std::int32_t m : InMemoryOrder(plan)) {
    const PlanMatrix& matrix = plan.matrices[m];
    const SlotExtents& extents = extents_[m];
    for (int s = 1; s < kSlotCount; ++s) {
      const Slot slot = static_cast<Slot>(s);
      if (slot == Slot::kWeight && matrix.layout != Layout::kOwned) continue;
      if (!extents.HeldAnywhere(slot)) continue;
      std::vector<Held>& list = extents.At(slot, Role::kOther) != Extent::kNothing ? on_all_
                                : extents.At(slot, Role::kColumn) != Extent::kNothing
                                    ? on_column_[plan.topology.grid.local_of(matrix.owner)]
                                : extents.At(slot, Role::kNodeMate) != Extent::kNothing
                                    ? on_node_[plan.topology.grid.node_of(matrix.owner)]
                                    : on_owner_[matrix.owner];
      list.push_back(
          {m, slot, matrix.cols * static_cast<std::int64_t>(SizeOf(SlotType(matrix, slot)))});
    }
  }
}

template <typename Visit>
void BufferSizes::ForEachHeld(int rank, const Visit& visit) const {
  const ProcessGrid& grid = plan_.topology.grid;
  for (const std::vector<Held>* list : {&on_all_, &on_node_[grid.node_of(rank)],
                                        &on_column_[grid.local_of(rank)], &on_owner_[rank]}) {
    for (const Held& held : *list) visit(held, BytesOf(held, rank));
  }
}

RankBuffers BufferSizes::Of(int rank) const {
  RankBuffers buffers;
  buffers.bytes.resize(plan_.buffers);
  buffers.scratch = scratch_;
  buffers.offsets.resize(plan_.matrices.size());
  std::vector<std::int64_t> filled(filled_.size());
  ForEachHeld(rank, [&](const Held& held, std::int64_t bytes) {
    const PlanMatrix& matrix = plan_.matrices[held.matrix];
    const int slot = static_cast<int>(held.slot);
    const std::int32_t set = SetOf(matrix, held.slot);
    std::int64_t end = bytes;
    if (set >= 0) {
      std::int64_t& place = filled[set * kSlotCount + slot];
      buffers.offsets[held.matrix][slot] = place;
      end = place += bytes;
    }
    std::int64_t& size = buffers.bytes[matrix.buffers[slot]];
    size = std::max(size, end);
  });
  return buffers;
}

std::int64_t BufferSizes::Total(int rank) {
  std::fill(bytes_.begin(), bytes_.end(), 0);
  std::fill(filled_.begin(), filled_.end(), 0);
  std::int64_t total = all_scratch_;
  ForEachHeld(rank, [&](const Held& held, std::int64_t end) {
    if (end == 0) return;
    const PlanMatrix& matrix = plan_.matrices[held.matrix];
    const int slot = static_cast<int>(held.slot);
    if (const std::int32_t set = SetOf(matrix, held.slot); set >= 0) {
      end = filled_[set * kSlotCount + slot] += end;
    }
    std::int64_t& size = bytes_[matrix.buffers[slot]];
    if (end <= size) return;
    total += end - size;
    size = end;
  });
  return total;
}

std::int32_t BufferSizes::Largest(int rank) const {
  std::vector<std::int64_t> bytes(plan_.matrices.size());
  ForEachHeld(rank, [&](const Held& held, std::int64_t its) { bytes[held.matrix] += its; });
  return static_cast<std::int32_t>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

PieceRange PieceOf(std::int64_t count, const Op& op) {
  // Fewer than 2^40 elements and 2^10 pieces: no product overflows.
  const std::int64_t begin = count * op.piece / op.pieces;
  return {begin, count * (op.piece + 1) / op.pieces - begin};
}

std::int64_t PartBytes(const Plan& plan, const Op& op) {
  const DType type = SlotType(plan.matrices[op.matrix], op.source);
  return PartBytes(plan, op, op.bytes / static_cast<std::int64_t>(SizeOf(type)));
}

std::int64_t PartBytes(const Plan& plan, const Op& op, std::int64_t elements) {
  const auto width =
      static_cast<std::int64_t>(SizeOf(SlotType(plan.matrices[op.matrix], op.source)));
  std::size_t smallest = plan.groups[op.group].parts[0].size();
  for (const std::vector<int>& part : plan.groups[op.group].parts) {
    smallest = std::min(smallest, part.size());
  }
  return DefaultShardRows(elements, static_cast<int>(smallest))[0] * width;
}

std::vector<bool> SharedBuffers(const Plan& plan) {
  constexpr std::int64_t kNobody = INT64_MIN;
  std::vector<std::int64_t> occupant(plan.buffers, kNobody);
  std::vector<bool> shared(plan.buffers);
  for (std::size_t m = 0; m < plan.matrices.size(); ++m) {
    for (int s = 1; s < kSlotCount; ++s) {
      const std::int32_t buffer = plan.matrices[m].buffers[s];
      if (buffer < 0) continue;
      const std::int32_t mine =
          OccupantOf(plan, static_cast<std::int32_t>(m), static_cast<Slot>(s));
      if (occupant[buffer] != kNobody && occupant[buffer] != mine) shared[buffer] = true;
      occupant[buffer] = mine;
    }
  }
  return shared;
}

}  // namespace weft::scheduler

namespace weft {

RankBuffers BuffersOfRank(const Plan& plan, int rank) {
  return scheduler::BufferSizes(plan).Of(rank);
}

}  // namespace weft
