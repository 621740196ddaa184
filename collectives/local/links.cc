#include "collectives/local/links.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "base/link_cost.h"

namespace weft::collectives::local {
namespace {

bool IsEmulated(const Link& link) { return link.latency_us > 0 || link.gigabytes_per_second > 0; }

// In a group of two, two operations that go opposite ways do not disturb each other.
double SecondsOfTwo(const Operation& op, const Link& link) {
  std::array<double, 2> by_direction = {};
  for (std::size_t place = 0; place < PartsOf(op); ++place) {
    const Operation& part = PartOf(op, place);
    const bool other_way = part.root != (IsInwards(part.kind) ? 0 : 1);
    by_direction[other_way ? 1 : 0] += base::CollectiveSeconds(
        PatternOf(part.kind), 2, static_cast<double>(TotalBytes(part)), link);
  }
  return std::max(by_direction[0], by_direction[1]);
}

// Of others that run together all begin at once, and the port that carries most decides:
// port_of[member] is what the member's bytes to and from other ports go through.
double SecondsTogether(const Operation& op, const std::vector<int>& port_of, const Link& link) {
  const int ranks = static_cast<int>(port_of.size());
  if (op.joined.empty()) {
    return base::CollectiveSeconds(PatternOf(op.kind), ranks, static_cast<double>(TotalBytes(op)),
                                   link);
  }
  if (ranks == 2 && op.joined.size() == 1) return SecondsOfTwo(op, link);
  std::map<int, std::array<double, 2>> ports;  // bytes inwards and outwards
  for (std::size_t place = 0; place < PartsOf(op); ++place) {
    const Operation& part = PartOf(op, place);
    const int at_root = port_of[part.root];
    const int inwards = IsInwards(part.kind) ? 1 : 0;
    if (!IsPerRank(part.kind)) {
      // From member to member, once through each port but the root's.
      const std::set<int> others(port_of.begin(), port_of.end());
      for (const int port : others) {
        if (port != at_root) ports[port][inwards] += static_cast<double>(TotalBytes(part));
      }
      continue;
    }
    for (int member = 0; member < ranks; ++member) {
      if (port_of[member] == at_root) continue;
      const auto bytes = static_cast<double>(part.counts[member]);
      ports[port_of[member]][inwards] += bytes;
      ports[at_root][1 - inwards] += bytes;
    }
  }
  double most = 0;
  for (const auto& [port, bytes] : ports) most = std::max({most, bytes[0], bytes[1]});
  return base::CollectiveSeconds(base::Pattern::kRooted, ranks, most, link);
}

Nanos ToNanos(double seconds) { return static_cast<Nanos>(std::llround(seconds * 1e9)); }

}  // namespace

Links::Links(const Topology& topology)
    : topology_(topology),
      resources_(SharedResources(topology)),
      intra_emulated_(IsEmulated(topology.intra)),
      inter_emulated_(IsEmulated(topology.inter)),
      nic_of_(topology.grid.size(), -1),
      port_free_(topology.grid.size(), 0),
      resource_free_(resources_.size(), 0) {
  for (std::size_t i = 0; i < resources_.size(); ++i) {
    if (resources_[i].kind != SharedResource::Kind::kNic) continue;
    for (const int rank : resources_[i].ranks) nic_of_[rank] = static_cast<int>(i);
  }
}

Nanos Links::Book(const Operation& op, const std::vector<int>& world_ranks, Nanos arrival) {
  const bool limited = topology_.root_complex_gigabytes_per_second > 0;
  if (!intra_emulated_ && !inter_emulated_ && !limited) return arrival;
  const ProcessGrid& grid = topology_.grid;
  std::vector<int> members_on(grid.nodes, 0);
  for (const int rank : world_ranks) ++members_on[grid.node_of(rank)];
  const bool spans =
      members_on[grid.node_of(world_ranks.front())] < static_cast<int>(world_ranks.size());

  const int ranks = static_cast<int>(world_ranks.size());
  const std::vector<ResourceUse> uses = ResourcesOf(topology_, world_ranks);

  std::vector<Nanos*> until_end;
  std::vector<std::pair<Nanos*, Nanos>> for_a_time;
  Nanos length = 0;
  const Nanos in_node = ToNanos(SecondsTogether(op, world_ranks, topology_.intra));
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const int rank : world_ranks) {
    if (!intra_emulated_ || members_on[grid.node_of(rank)] < 2) continue;
    until_end.push_back(&port_free_[rank]);
    length = in_node;
  }
  if (inter_emulated_ && spans) {
    std::vector<int> nics;
    nics.reserve(world_ranks.size());
    for (const int rank : world_ranks) nics.push_back(nic_of_[rank]);
    length = std::max(length, ToNanos(SecondsTogether(op, nics, topology_.inter)));
  }
  for (const ResourceUse& use : uses) {
    Nanos* const free = &resource_free_[use.resource];
    const SharedResource& resource = resources_[use.resource];
    if (resource.kind == SharedResource::Kind::kNic) {
      if (inter_emulated_) until_end.push_back(free);
      continue;
    }
    // Both directions pass through it.
    double seconds = 0;
    for (std::size_t place = 0; place < PartsOf(op); ++place) {
      const Operation& part = PartOf(op, place);
      const base::Pattern pattern = PatternOf(part.kind);
      const double passing = static_cast<double>(TotalBytes(part)) *
                             base::RootComplexPasses(pattern, use.passes, ranks);
      seconds += base::CollectiveSeconds(pattern, ranks, passing, resource.link);
    }
    const Nanos busy = ToNanos(seconds);
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
