#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "weft/topology.h"

namespace weft {
namespace {

// Where the resources of a topology lie in SharedResources().
class Places {
 public:
  explicit Places(const Topology& topology)
      : grid_(topology.grid),
        is_limited_(topology.root_complex_gigabytes_per_second > 0),
        root_complexes_(std::min(topology.root_complexes_per_node, grid_.ranks_per_node)),
        nics_(topology.nics_per_node > 0 ? std::min(topology.nics_per_node, grid_.ranks_per_node)
                                         : grid_.ranks_per_node) {}

  bool is_limited() const { return is_limited_; }
  int root_complexes() const { return is_limited_ ? root_complexes_ : 0; }
  int nics() const { return nics_; }
  int per_node() const { return root_complexes() + nics_; }

  // Both extents are at most kMostRanks = 2^16, so their product needs more than an int.
  int RootComplexOf(int rank) const {
    const std::int64_t scaled = std::int64_t{grid_.local_of(rank)} * root_complexes_;
    return grid_.node_of(rank) * per_node() + static_cast<int>(scaled / grid_.ranks_per_node);
  }
  int NicOf(int rank) const {
    return grid_.node_of(rank) * per_node() + root_complexes() + grid_.local_of(rank) % nics_;
  }

 private:
  const ProcessGrid grid_;
  const bool is_limited_;
  const int root_complexes_;
  const int nics_;
};

}  // namespace

std::vector<SharedResource> SharedResources(const Topology& topology) {
  const Places places(topology);
  std::vector<SharedResource> resources;
  for (int node = 0; node < topology.grid.nodes; ++node) {
    for (int i = 0; i < places.root_complexes(); ++i) {
      resources.push_back({SharedResource::Kind::kRootComplex,
                           absl::StrCat("node ", node, " root complex ", i),
                           {},
                           {0, topology.root_complex_gigabytes_per_second}});
    }
    for (int i = 0; i < places.nics(); ++i) {
      resources.push_back({SharedResource::Kind::kNic,
                           absl::StrCat("node ", node, " nic ", i),
                           {},
                           topology.inter});
    }
  }
  for (int rank = 0; rank < topology.grid.size(); ++rank) {
    if (places.is_limited()) resources[places.RootComplexOf(rank)].ranks.push_back(rank);
    resources[places.NicOf(rank)].ranks.push_back(rank);
  }
  return resources;
}

std::vector<ResourceUse> ResourcesOf(const Topology& topology, const std::vector<int>& ranks) {
  if (ranks.size() < 2) return {};
  const Places places(topology);
  std::map<int, std::map<int, int>> nodes;  // members by node and root complex
  for (const int rank : ranks) {
    ++nodes[topology.grid.node_of(rank)][places.RootComplexOf(rank)];
  }
  const bool spans = nodes.size() > 1;
  std::map<int, int> passes;
  for (const auto& [node, root_complexes] : nodes) {
    if (!places.is_limited()) break;
    const bool leaves =
        spans || (topology.intra_class == LinkClass::kPcieSwitch && root_complexes.size() > 1);
    const bool every_hop =
        topology.intra_class == LinkClass::kPcie || topology.intra_class == LinkClass::kShm;
    for (const auto& [resource, members] : root_complexes) {
      if (every_hop) {
        passes[resource] = members;
      } else if (leaves) {
        passes[resource] = 1;
      }
    }
  }
  if (spans) {
    for (const int rank : ranks) passes[places.NicOf(rank)] = 1;
  }
  std::vector<ResourceUse> uses;
  uses.reserve(passes.size());
  for (const auto& [resource, count] : passes) uses.push_back({resource, count});
  return uses;
}

}  // namespace weft
