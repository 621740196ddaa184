#include "collectives/local/links.h"

#include <algorithm>
#include <cmath>

#include "base/link_cost.h"

namespace weft::collectives::local {
namespace {

bool IsEmulated(const Link& link) { return link.latency_us > 0 || link.gigabytes_per_second > 0; }

}  // namespace

Links::Links(const Topology& topology)
    : topology_(topology),
      // More NICs than ranks would be of no use to anybody.
      nics_(topology.nics_per_node > 0
                ? std::min(topology.nics_per_node, topology.grid.ranks_per_node)
                : topology.grid.ranks_per_node),
      intra_emulated_(IsEmulated(topology.intra)),
      inter_emulated_(IsEmulated(topology.inter)),
      port_free_(topology.grid.size(), 0),
      nic_free_(static_cast<std::size_t>(topology.grid.nodes) * nics_, 0) {}

Nanos Links::Book(const Operation& op, const std::vector<int>& world_ranks, Nanos arrival) {
  if (!intra_emulated_ && !inter_emulated_) return arrival;
  const ProcessGrid& grid = topology_.grid;
  std::vector<int> members_on(grid.nodes, 0);
  for (const int rank : world_ranks) ++members_on[grid.node_of(rank)];
  const bool spans =
      members_on[grid.node_of(world_ranks.front())] < static_cast<int>(world_ranks.size());

  std::vector<Nanos*> used;
  bool uses_intra = false;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const int rank : world_ranks) {
    if (intra_emulated_ && members_on[grid.node_of(rank)] > 1) {
      used.push_back(&port_free_[rank]);
      uses_intra = true;
    }
    if (inter_emulated_ && spans) used.push_back(&nic_free_[NicOf(rank)]);
  }
  if (used.empty()) return arrival;

  const auto bytes = static_cast<double>(TotalBytes(op));
  const int ranks = static_cast<int>(world_ranks.size());
  double seconds = 0;
  if (spans) seconds = base::CollectiveSeconds(PatternOf(op.kind), ranks, bytes, topology_.inter);
  if (uses_intra) {
    seconds = std::max(seconds,
                       base::CollectiveSeconds(PatternOf(op.kind), ranks, bytes, topology_.intra));
  }
  Nanos begin = arrival;
  for (const Nanos* free : used) begin = std::max(begin, *free);
  const Nanos end = begin + static_cast<Nanos>(std::llround(seconds * 1e9));
  for (Nanos* free : used) *free = end;
  latest_end_ = std::max(latest_end_, end);
  return end;
}

Nanos Links::latest_end() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return latest_end_;
}

std::size_t Links::NicOf(int world_rank) const {
  const ProcessGrid& grid = topology_.grid;
  return static_cast<std::size_t>(grid.node_of(world_rank)) * nics_ +
         grid.local_of(world_rank) % nics_;
}

}  // namespace weft::collectives::local
