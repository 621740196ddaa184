#include "collectives/local/links.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/link_cost.h"

namespace weft::collectives::local {
namespace {

bool IsEmulated(const Link& link) { return link.latency_us > 0 || link.gigabytes_per_second > 0; }

Nanos ToNanos(double seconds) { return static_cast<Nanos>(std::llround(seconds * 1e9)); }

}  // namespace

Links::Links(const Topology& topology)
    : topology_(topology),
      resources_(SharedResources(topology)),
      intra_emulated_(IsEmulated(topology.intra)),
      inter_emulated_(IsEmulated(topology.inter)),
      port_free_(topology.grid.size(), 0),
      resource_free_(resources_.size(), 0) {}

Nanos Links::Book(const Operation& op, const std::vector<int>& world_ranks, Nanos arrival) {
  const bool limited = topology_.root_complex_gigabytes_per_second > 0;
  if (!intra_emulated_ && !inter_emulated_ && !limited) return arrival;
  const ProcessGrid& grid = topology_.grid;
  std::vector<int> members_on(grid.nodes, 0);
  for (const int rank : world_ranks) ++members_on[grid.node_of(rank)];
  const bool spans =
      members_on[grid.node_of(world_ranks.front())] < static_cast<int>(world_ranks.size());

  const int ranks = static_cast<int>(world_ranks.size());
  const auto bytes = static_cast<double>(TotalBytes(op));
  const auto time = [&](double amount, const Link& link) {
    return ToNanos(base::CollectiveSeconds(PatternOf(op.kind), ranks, amount, link));
  };
  const std::vector<ResourceUse> uses = ResourcesOf(topology_, world_ranks);

  std::vector<Nanos*> until_end;
  std::vector<std::pair<Nanos*, Nanos>> for_a_time;
  Nanos length = 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const int rank : world_ranks) {
    if (!intra_emulated_ || members_on[grid.node_of(rank)] < 2) continue;
    until_end.push_back(&port_free_[rank]);
    length = time(bytes, topology_.intra);
  }
  if (inter_emulated_ && spans) length = std::max(length, time(bytes, topology_.inter));
  for (const ResourceUse& use : uses) {
    Nanos* const free = &resource_free_[use.resource];
    const SharedResource& resource = resources_[use.resource];
    if (resource.kind == SharedResource::Kind::kNic) {
      if (inter_emulated_) until_end.push_back(free);
      continue;
    }
    const Nanos busy =
        time(bytes * base::RootComplexPasses(PatternOf(op.kind), use.passes, ranks), resource.link);
    for_a_time.emplace_back(free, busy);
    length = std::max(length, busy);
  }
  if (until_end.empty() && for_a_time.empty()) return arrival;

  Nanos begin = arrival;
  for (const Nanos* free : until_end) begin = std::max(begin, *free);
  for (const auto& [free, busy] : for_a_time) begin = std::max(begin, *free);
  const Nanos end = begin + length;
  for (Nanos* free : until_end) *free = end;
  for (const auto& [free, busy] : for_a_time) *free = begin + busy;
  latest_end_ = std::max(latest_end_, end);
  return end;
}

Nanos Links::latest_end() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return latest_end_;
}

}  // namespace weft::collectives::local
