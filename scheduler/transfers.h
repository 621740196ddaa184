// What collectives take of the links: how long each lasts alone, and what it crosses.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/fair_links.h"
#include "weft/cost_model.h"
#include "weft/plan.h"

namespace weft::scheduler {

struct Transfer {
  double seconds = 0;    // alone: what CostModel says
  double latency = 0;    // of them, at the beginning, when nothing is on the links yet
  double full_rate = 0;  // bytes per second that one member's port carries then, alone
  // With shares above 0.
  std::vector<LinkUse> uses;
};

// Links are the SharedResources() of the topology, then the ports of its ranks. Both directions of
// a link count as one: the members of a ring send and receive.
class Transfers {
 public:
  // Both outlive this. Their grids are the same.
  Transfers(const Plan& plan, const CostModel& model);

  int links() const { return static_cast<int>(resources_.size()) + plan_.topology.grid.size(); }
  // Index into all(), of the collective `op` in one part of its group, which has two ranks or more;
  // of a pair, of both, asked of the first.
  std::int32_t Of(std::int32_t op, int part);
  const std::vector<Transfer>& all() const { return transfers_; }

 private:
  // What a part of a group crosses.
  struct Crossing {
    GroupClass group_class = GroupClass::kWorld;
    int ranks = 0;
    std::vector<int> ports;  // ranks that are not alone on their node
    std::vector<ResourceUse> uses;
  };
  // One collective of a kind and a payload.
  struct Leg {
    OpKind kind;
    double bytes;
  };

  const Crossing& CrossingOf(std::int32_t group, int part);
  // Of an exchange whose collectives run together: what the busiest port or NIC carries one way.
  std::int64_t BusiestBytes(const Op& op) const;
  Transfer Make(const Crossing& crossing, const std::vector<Leg>& legs, bool pair) const;

  const Plan& plan_;
  const CostModel& model_;
  const std::vector<SharedResource> resources_;
  std::map<std::pair<std::int32_t, int>, Crossing> crossings_;
  using Key = std::tuple<std::int32_t, int, OpKind, CollectiveForm, std::int64_t, std::int64_t>;
  std::map<Key, std::int32_t> known_;
  std::vector<Transfer> transfers_;
};

}  // namespace weft::scheduler
