// Plan requests for tests, written down or drawn.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/plan.h"

namespace weft::testing {

inline PlanMatrix Matrix(std::string name, std::int64_t rows, std::int64_t cols,
                         Layout layout = Layout::kReplicated,
                         GradientKind gradient = GradientKind::kLocal,
                         RuleKind rule = RuleKind::kMuon) {
  PlanMatrix matrix;
  matrix.name = std::move(name);
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.layout = layout;
  matrix.gradient = gradient;
  matrix.rule = rule;
  matrix.state_bytes_per_element = rule == RuleKind::kElementwise ? 8 : 4;
  matrix.flops = static_cast<double>(rows) * static_cast<double>(cols) * 10;
  return matrix;
}

inline PlanRequest Request(Strategy strategy, int nodes, int ranks_per_node,
                           std::vector<PlanMatrix> matrices) {
  PlanRequest request;
  request.strategy = strategy;
  request.topology.grid = {nodes, ranks_per_node};
  request.matrices = std::move(matrices);
  // So that tests see each matrix on its own.
  request.limits.bucket_bytes = request.limits.exchange_bytes = 0;
  return request;
}

// From `low` up to but not including `high`, all equally likely: plain inRange() keeps close to
// `low` during the first runs of a property, and 100 runs would see few large plans.
template <typename T>
rc::Gen<T> Evenly(T low, T high) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high));
}

// Rows dealt to ranks at random, some of them getting none.
inline std::vector<std::int64_t> DrawShards(std::int64_t rows, int ranks) {
  std::vector<std::int64_t> shards(ranks, 0);
  std::int64_t left = rows;
  for (int rank = 0; rank + 1 < ranks; ++rank) {
    shards[rank] = *rc::gen::element<std::int64_t>(0, left, *Evenly<std::int64_t>(0, left / 2 + 1));
    left -= shards[rank];
  }
  shards[ranks - 1] = left;
  return shards;
}

inline std::int64_t DrawExtent(std::int64_t most) {
  return *rc::gen::weightedOneOf<std::int64_t>({{1, rc::gen::just<std::int64_t>(0)},
                                                {1, rc::gen::just<std::int64_t>(1)},
                                                {12, Evenly<std::int64_t>(0, most + 1)}});
}

// One to `most_ranks` ranks; where both extents can be above one, they mostly are.
inline ProcessGrid DrawGrid(int most_ranks) {
  const int ranks = *Evenly(1, most_ranks + 1);
  int shorter = 1;
  while ((shorter + 1) * (shorter + 1) <= ranks) ++shorter;
  shorter = *Evenly(1, shorter + 1);
  const bool few_nodes = *rc::gen::arbitrary<bool>();
  return few_nodes ? ProcessGrid{shorter, ranks / shorter} : ProcessGrid{ranks / shorter, shorter};
}

struct DrawLimits {
  int most_nodes = 4;
  int most_ranks_per_node = 4;
  int most_matrices = 60;
  std::int64_t most_rows = 512;
  std::vector<DType> dtypes{kDTypes.begin(), kDTypes.end()};
  std::vector<Strategy> strategies = {Strategy::kReplicated, Strategy::kGather, Strategy::kOwner,
                                      Strategy::kNodeLocal, Strategy::kLayerwise};
  std::vector<Layout> layouts = {Layout::kReplicated, Layout::kSharded, Layout::kOwned,
                                 Layout::kNodeSharded};
};

// Those of `layouts` that a strategy serves.
inline std::vector<Layout> LayoutsFor(Strategy strategy, RuleKind rule,
                                      std::vector<Layout> layouts) {
  const bool whole = rule != RuleKind::kElementwise;
  const bool everywhere = strategy == Strategy::kReplicated && whole;
  if (everywhere) std::erase(layouts, Layout::kSharded);
  if (everywhere || (strategy == Strategy::kLayerwise && whole)) {
    std::erase(layouts, Layout::kNodeSharded);
  }
  if (strategy != Strategy::kOwner) std::erase(layouts, Layout::kOwned);
  return layouts;
}

inline bool InShards(Layout layout) {
  return layout == Layout::kSharded || layout == Layout::kNodeSharded;
}

// The ranks among which the rows of a matrix in shards are dealt out.
inline int Shards(Layout layout, const ProcessGrid& grid) {
  return layout == Layout::kNodeSharded ? grid.ranks_per_node : grid.size();
}

inline GradientKind DrawGradient(Layout layout) {
  if (layout != Layout::kNodeSharded) {
    return *rc::gen::element(GradientKind::kLocal, GradientKind::kReduced);
  }
  return *rc::gen::element(GradientKind::kLocal, GradientKind::kReduced, GradientKind::kReplica);
}

inline PlanLimits DrawPlanLimits() {
  PlanLimits limits;
  limits.collectives_in_flight = *Evenly(1, 3);
  limits.buffers_in_turn = *Evenly(1, 9);
  limits.bucket_bytes = *rc::gen::element<std::int64_t>(0, 200, 5000, 1 << 20);
  limits.exchange_bytes = *rc::gen::element<std::int64_t>(0, 5000, 1 << 20, 64 << 20);
  limits.inter_layers_ahead = *Evenly(0, 4);
  limits.intra_layers_ahead = *Evenly(0, 4);
  limits.keep_through_backward = *rc::gen::arbitrary<bool>();
  limits.passes = *Evenly(1, 4);
  limits.reduce_each_pass = *rc::gen::arbitrary<bool>();
  return limits;
}

inline bool GetsOwner(const PlanRequest& request, const PlanMatrix& matrix) {
  if (matrix.layout == Layout::kOwned) return true;
  if (matrix.rule == RuleKind::kElementwise || matrix.pass_through) return false;
  const ProcessGrid& grid = request.topology.grid;
  return request.strategy == Strategy::kOwner || request.strategy == Strategy::kLayerwise ||
         (request.strategy == Strategy::kNodeLocal && (grid.ranks_per_node > 1 || grid.nodes == 1));
}

// Periodic matrices in shards under strategy owner: the owner runs NS and nothing else.
inline bool StateOnShards(const Plan& plan, const PlanMatrix& matrix) {
  const ProcessGrid& grid = plan.topology.grid;
  const bool with_owner = plan.strategy == Strategy::kOwner ||
                          (plan.strategy == Strategy::kNodeLocal && grid.nodes == 1);
  return with_owner && InShards(matrix.layout) && matrix.period > 1 && !matrix.pass_through &&
         grid.size() > 1;
}

// Whether a rank runs the rule of a matrix.
inline bool RunsRule(const Plan& plan, const PlanMatrix& matrix, int rank) {
  const ProcessGrid& grid = plan.topology.grid;
  if (matrix.owner < 0 || matrix.owner == rank || StateOnShards(plan, matrix)) return true;
  return plan.strategy == Strategy::kNodeLocal &&
         grid.local_of(rank) == grid.local_of(matrix.owner);
}

// Ranks that run the rule of a matrix with an owner; 0 where the strategy has none.
inline int OwnersEach(const PlanRequest& request) {
  const ProcessGrid& grid = request.topology.grid;
  if (request.strategy == Strategy::kOwner || request.strategy == Strategy::kLayerwise) return 1;
  if (request.strategy != Strategy::kNodeLocal || grid.ranks_per_node == 1) return 0;
  return grid.nodes;
}

// The owners that a request may give.
inline int OwnerChoices(const PlanRequest& request) {
  const ProcessGrid& grid = request.topology.grid;
  return request.strategy == Strategy::kNodeLocal ? grid.ranks_per_node : grid.size();
}

// Caps leave room for the largest matrix or bucket beside a mean load, so that owners can be found.
inline void DrawCap(const PlanRequest& request, OwnershipOptions& ownership) {
  // A bucket's elements have two bytes or more.
  double most = static_cast<double>(request.limits.bucket_bytes) / 2;
  double all = 0;
  std::int64_t most_state = 4 * (request.limits.bucket_bytes / 2);
  std::int64_t all_state = 0;
  for (const PlanMatrix& matrix : request.matrices) {
    if (!GetsOwner(request, matrix)) continue;
    const std::int64_t elements = matrix.rows * matrix.cols;
    most = std::max(most, static_cast<double>(elements));
    all += static_cast<double>(elements);
    most_state = std::max(most_state, elements * matrix.state_bytes_per_element);
    all_state += elements * matrix.state_bytes_per_element;
  }
  if (all == 0) return;
  if (*rc::gen::arbitrary<bool>()) {
    ownership.state_bytes_cap = most_state + all_state / OwnerChoices(request) + 1;
  } else {
    // An element's traffic is 2 to 20 bytes.
    ownership.inter_group_factor = 1 + 10 * most / all * request.topology.grid.ranks_per_node;
  }
}

inline OwnershipOptions DrawOwnership(const PlanRequest& request) {
  OwnershipOptions ownership;
  const auto one_in = [](int n) { return *Evenly(0, n) == 0; };
  if (one_in(3)) {
    ownership.batch_costs.resize(*Evenly(1, 4));
    for (std::vector<double>& table : ownership.batch_costs) {
      table.resize(*Evenly(1, 5));
      for (double& cost : table) cost = *Evenly(0, 100);
    }
    for (std::size_t m = 0; m < request.matrices.size(); ++m) {
      ownership.matrix_table.push_back(*Evenly(0, static_cast<int>(ownership.batch_costs.size())));
    }
  }
  if (one_in(2)) {
    const int in_layer = *Evenly(1, 9);
    for (std::size_t m = 0; m < request.matrices.size(); ++m) {
      ownership.layers.push_back(static_cast<std::int32_t>(m) / in_layer);
    }
  }
  if (one_in(3)) {
    for (const PlanMatrix& matrix : request.matrices) {
      ownership.owners.push_back(GetsOwner(request, matrix) ? *Evenly(0, OwnerChoices(request))
                                                            : -1);
    }
  } else if (one_in(2)) {
    DrawCap(request, ownership);
  }
  return ownership;
}

// Any mix of layouts, gradients and rules that the drawn strategy serves, with any limits and
// wishes for owners that can be met.
inline PlanRequest DrawRequest(const DrawLimits& limits, const ProcessGrid& grid) {
  const auto strategy = *rc::gen::elementOf(limits.strategies);
  PlanRequest request = Request(strategy, grid.nodes, grid.ranks_per_node, {});
  request.check_gradients = *rc::gen::arbitrary<bool>();
  request.limits = DrawPlanLimits();
  for (auto* from : {&request.forms.reduce_split_from, &request.forms.broadcast_split_from}) {
    for (std::int64_t& bytes : *from) bytes = *rc::gen::element<std::int64_t>(-1, 0, 1000);
  }
  for (std::int64_t& bytes : request.forms.pair_from) {
    bytes = *rc::gen::element<std::int64_t>(-1, 0, 1000);
  }
  const int count = *Evenly(1, limits.most_matrices + 1);
  for (int i = 0; i < count; ++i) {
    const auto rule = *rc::gen::weightedElement<RuleKind>(
        {{4, RuleKind::kMuon}, {1, RuleKind::kElementwise}, {1, RuleKind::kCustom}});
    const auto layout = *rc::gen::elementOf(LayoutsFor(strategy, rule, limits.layouts));
    std::int64_t rows, cols;
    if (i > 0 && *rc::gen::arbitrary<bool>()) {
      // As an earlier one, or there would be no batches.
      const PlanMatrix& earlier = request.matrices[*Evenly(0, i)];
      rows = earlier.rows;
      cols = earlier.cols;
    } else {
      rows = DrawExtent(limits.most_rows);
      cols = DrawExtent(limits.most_rows);
    }
    PlanMatrix matrix =
        Matrix("m" + std::to_string(i), rows, cols, layout, DrawGradient(layout), rule);
    matrix.dtype = *rc::gen::elementOf(limits.dtypes);
    // Layers may lie apart and overlap.
    matrix.layer = *Evenly(0, 3) + i / 4;
    if (InShards(layout) && *rc::gen::arbitrary<bool>()) {
      matrix.shard_rows = DrawShards(matrix.rows, Shards(layout, grid));
    }
    if (rule == RuleKind::kMuon && *Evenly(0, 3) == 0) {
      matrix.period = *rc::gen::element(2, 3, 5);
      matrix.phase = *Evenly(0, matrix.period);
      matrix.norm_vectors = InShards(layout) && rows > cols;
    }
    matrix.pass_through = strategy == Strategy::kOwner && GetsOwner(request, matrix) &&
                          layout != Layout::kOwned && *Evenly(0, 4) == 0;
    request.matrices.push_back(std::move(matrix));
  }
  request.ownership = DrawOwnership(request);
  // Few pieces of the largest: plans grow with them.
  std::int64_t most = 0;
  for (const PlanMatrix& matrix : request.matrices) {
    most = std::max(most, matrix.rows * matrix.cols);
  }
  if (*rc::gen::arbitrary<bool>()) request.limits.piece_bytes = most / *Evenly(1, 4);
  return request;
}

inline PlanRequest DrawRequest(const DrawLimits& limits) {
  return DrawRequest(
      limits, {*Evenly(1, limits.most_nodes + 1), *Evenly(1, limits.most_ranks_per_node + 1)});
}

}  // namespace weft::testing
