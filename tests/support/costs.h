// Cost models that make plans what a test needs.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "weft/cost_model.h"

namespace weft::testing {

// A second is a FLOP, so that owners are balanced by FLOPs alone and nothing pays as a batch.
inline std::shared_ptr<const CostModel> FlopsAsSeconds(const Topology& topology) {
  return std::make_shared<const CostModel>(
      topology, AnalyticRates{.flops_per_second = 1, .launch_seconds = 0});
}

// One for which ChooseForms() takes the split form from the first power of two at or above what
// `forms` says (never where that is -1); groups of one rank have no costs.
inline CostProfile ProfileWithForms(const ProcessGrid& grid, const FormChoices& forms) {
  constexpr double kNanosecond = 1e-3;  // of latency
  const std::array<int, kGroupClassCount> ranks = {grid.size(), grid.ranks_per_node, grid.nodes};
  CostProfile profile;
  for (int g = 0; g < kGroupClassCount; ++g) {
    if (ranks[g] < 2) continue;
    const auto add = [&](OpKind kind, LinkFit fit) {
      profile.collectives.push_back({kind, static_cast<GroupClass>(g), ranks[g], fit, {}});
    };
    const auto from = [&](std::int64_t bytes, OpKind direct, OpKind first, OpKind second) {
      // The direct form costs a nanosecond per byte, or nothing; the parts cost no more for more.
      add(direct, {.gigabytes_per_second = bytes >= 0 ? 1.0 : 0.0});
      const double each = bytes >= 0 ? 0.4 * static_cast<double>(bytes) * kNanosecond : 1.0;
      for (const OpKind part : {first, second}) add(part, {.latency_us = each});
    };
    from(forms.reduce_split_from[g], OpKind::kReduce, OpKind::kReduceScatter, OpKind::kGather);
    from(forms.broadcast_split_from[g], OpKind::kBroadcast, OpKind::kScatter, OpKind::kAllGather);
  }
  return profile;
}

inline std::shared_ptr<const CostModel> CostsWithForms(const Topology& topology,
                                                       const FormChoices& forms) {
  return std::make_shared<const CostModel>(ProfileWithForms(topology.grid, forms), topology);
}

// One for which ChooseForms() takes pairs in all groups of two, and no split form.
inline std::shared_ptr<const CostModel> CostsWithPairs(const Topology& topology) {
  const ProcessGrid& grid = topology.grid;
  const std::array<int, kGroupClassCount> ranks = {grid.size(), grid.ranks_per_node, grid.nodes};
  CostProfile profile;
  for (int g = 0; g < kGroupClassCount; ++g) {
    if (ranks[g] < 2) continue;
    const auto add = [&](OpKind kind, double gigabytes_per_second) {
      profile.collectives.push_back({kind,
                                     static_cast<GroupClass>(g),
                                     ranks[g],
                                     {.gigabytes_per_second = gigabytes_per_second},
                                     {}});
    };
    for (const OpKind kind :
         {OpKind::kReduce, OpKind::kBroadcast, OpKind::kGather, OpKind::kScatter}) {
      add(kind, 1);
    }
    for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kAllGather}) add(kind, 2);
  }
  return std::make_shared<const CostModel>(profile, topology);
}

// The split form for every payload, on every class of groups.
inline constexpr FormChoices kAlwaysSplit = {{0, 0, 0}, {0, 0, 0}};

}  // namespace weft::testing
