// Plan requests for tests, written down or drawn.
#pragma once

#include <rapidcheck.h>

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
  request.limits.bucket_bytes = 0;  // so that tests see each matrix on its own
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

struct DrawLimits {
  int most_nodes = 4;
  int most_ranks_per_node = 4;
  int most_matrices = 60;
  std::int64_t most_rows = 512;
};

// Limits and cost tables: what buckets, batches and shared buffers come from.
inline void DrawLimitsOfPlan(PlanRequest& request) {
  request.limits.bucket_bytes = *rc::gen::element<std::int64_t>(0, 200, 5000, 1 << 20);
  request.limits.buffers_in_turn = *Evenly(1, 5);
  request.limits.collectives_in_flight = *Evenly(1, 3);
  if (*rc::gen::arbitrary<bool>()) return;
  const int tables = *Evenly(1, 4);
  for (int t = 0; t < tables; ++t) {
    std::vector<double> costs;
    for (int batch = *Evenly(1, 5), b = 1; b <= batch; ++b) costs.push_back(1 + 0.5 * b);
    request.ownership.batch_costs.push_back(std::move(costs));
  }
  for (std::size_t m = 0; m < request.matrices.size(); ++m) {
    request.ownership.matrix_table.push_back(*Evenly(0, tables));
  }
}

// Any mix of layouts, gradients and rules that the drawn strategy serves.
inline PlanRequest DrawRequest(const DrawLimits& limits) {
  const auto strategy =
      *rc::gen::element(Strategy::kReplicated, Strategy::kGather, Strategy::kOwner);
  PlanRequest request = Request(strategy, *Evenly(1, limits.most_nodes + 1),
                                *Evenly(1, limits.most_ranks_per_node + 1), {});
  request.check_gradients = *rc::gen::arbitrary<bool>();
  const int ranks = request.topology.grid.size();
  const int count = *Evenly(1, limits.most_matrices + 1);
  for (int i = 0; i < count; ++i) {
    const auto rule = *rc::gen::weightedElement<RuleKind>(
        {{4, RuleKind::kMuon}, {1, RuleKind::kElementwise}, {1, RuleKind::kCustom}});
    auto layout = *rc::gen::element(Layout::kReplicated, Layout::kSharded);
    if (strategy == Strategy::kReplicated && rule != RuleKind::kElementwise) {
      layout = Layout::kReplicated;
    }
    PlanMatrix matrix =
        Matrix("m" + std::to_string(i), DrawExtent(limits.most_rows), DrawExtent(limits.most_rows),
               layout, *rc::gen::element(GradientKind::kLocal, GradientKind::kReduced), rule);
    matrix.dtype = *rc::gen::element(DType::kF32, DType::kBF16);
    if (layout == Layout::kSharded && *rc::gen::arbitrary<bool>()) {
      matrix.shard_rows = DrawShards(matrix.rows, ranks);
    }
    request.matrices.push_back(std::move(matrix));
  }
  DrawLimitsOfPlan(request);
  return request;
}

}  // namespace weft::testing
