// A small model with repeatable random weights and gradients, held as one rank holds it.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/pinned.h"
#include "weft/runtime.h"

namespace weft::testing {

struct Shape {
  std::int64_t rows, cols;
};

// Standard normal numbers that depend on all of the arguments and nothing else.
inline std::vector<float> Normal(std::int64_t count, std::uint64_t seed, std::uint64_t a = 0,
                                 std::uint64_t b = 0, std::uint64_t c = 0) {
  std::seed_seq sequence{seed, a, b, c};
  std::mt19937_64 engine(sequence);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

struct ModelMatrix {
  Shape shape;
  Layout layout = Layout::kReplicated;
  GradientKind gradient = GradientKind::kLocal;
  // Empty: DefaultShardRows(). Of node_sharded matrices it is given, and tells how many ranks a
  // node has.
  std::vector<std::int64_t> shard_rows = {};
};

// One rank's fp32 weights of a model.
class RankModel {
 public:
  RankModel(std::vector<ModelMatrix> matrices, int rank, int world, std::uint64_t seed)
      : matrices_(std::move(matrices)), rank_(rank), world_(world), seed_(seed) {
    pins_.resize(matrices_.size());
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      weights_.push_back(OwnRows(m, FirstWeight(m)));
    }
  }
  // All matrices have one layout; if that is node_sharded, `ranks_per_node` is given.
  RankModel(const std::vector<Shape>& shapes, Layout layout, GradientKind kind, int rank, int world,
            std::uint64_t seed, int ranks_per_node = 0)
      : RankModel(Alike(shapes, layout, kind, ranks_per_node), rank, world, seed) {}

  static std::string NameOf(std::size_t m) { return "m" + std::to_string(m); }

  MatrixSpec Spec(std::size_t m, Rule rule) {
    MatrixSpec spec;
    spec.name = NameOf(m);
    spec.rows = shape(m).rows;
    spec.cols = shape(m).cols;
    spec.weight = weights_[m].data();
    // Not before: letting it go waits for the device.
    if (pins_[m] == nullptr)
      pins_[m] = std::make_unique<Pinned>(spec.weight, weights_[m].size() * sizeof(float));
    spec.layout = matrices_[m].layout;
    spec.gradient = matrices_[m].gradient;
    spec.shard_rows = matrices_[m].shard_rows;
    spec.layer = static_cast<int>(m);
    spec.rule = std::move(rule);
    return spec;
  }

  // Whole.
  std::vector<float> FirstWeight(std::size_t m) const { return Normal(Size(m), seed_, 1, m); }
  // This rank's own gradient, whole.
  std::vector<float> LocalGradient(std::size_t m, std::int64_t step, int rank) const {
    return Normal(Size(m), seed_, 2 + static_cast<std::uint64_t>(step), m,
                  static_cast<std::uint64_t>(rank));
  }
  // Mean over the world, summed in rank order.
  std::vector<float> MeanGradient(std::size_t m, std::int64_t step) const {
    return MeanOver(m, step, 0, world_);
  }
  // What this rank submits.
  std::vector<float> Gradient(std::size_t m, std::int64_t step) const {
    switch (matrices_[m].gradient) {
      case GradientKind::kLocal:
        return LocalGradient(m, step, rank_);
      case GradientKind::kReduced:
        return OwnRows(m, MeanGradient(m, step));
      case GradientKind::kReplica:
        break;
    }
    const auto in_node = static_cast<int>(matrices_[m].shard_rows.size());
    const int first = rank_ / in_node * in_node;
    return OwnRows(m, MeanOver(m, step, first, first + in_node));
  }

  std::vector<float>& weight(std::size_t m) { return weights_[m]; }
  const std::vector<std::vector<float>>& weights() const { return weights_; }
  std::size_t size() const { return matrices_.size(); }
  const Shape& shape(std::size_t m) const { return matrices_[m].shape; }
  std::int64_t Size(std::size_t m) const { return shape(m).rows * shape(m).cols; }

  // Rows of a whole matrix that this rank holds.
  std::vector<float> OwnRows(std::size_t m, const std::vector<float>& whole) const {
    const ModelMatrix& matrix = matrices_[m];
    if (matrix.layout != Layout::kSharded && matrix.layout != Layout::kNodeSharded) return whole;
    std::vector<std::int64_t> rows = matrix.shard_rows;
    if (rows.empty()) rows = DefaultShardRows(matrix.shape.rows, world_);
    const int own = rank_ % static_cast<int>(rows.size());
    std::int64_t begin = 0;
    for (int shard = 0; shard < own; ++shard) begin += rows[shard];
    const auto first = whole.begin() + begin * matrix.shape.cols;
    return {first, first + rows[own] * matrix.shape.cols};
  }

 private:
  // Over the ranks from `first` up to but not including `end`.
  std::vector<float> MeanOver(std::size_t m, std::int64_t step, int first, int end) const {
    std::vector<float> sum(Size(m), 0.0f);
    for (int rank = first; rank < end; ++rank) {
      const std::vector<float> part = LocalGradient(m, step, rank);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (float& value : sum) value /= static_cast<float>(end - first);
    return sum;
  }

  static std::vector<ModelMatrix> Alike(const std::vector<Shape>& shapes, Layout layout,
                                        GradientKind kind, int ranks_per_node) {
    std::vector<ModelMatrix> matrices;
    for (const Shape& shape : shapes) {
      matrices.push_back({shape, layout, kind});
      if (layout != Layout::kNodeSharded) continue;
      matrices.back().shard_rows = DefaultShardRows(shape.rows, ranks_per_node);
    }
    return matrices;
  }

  const std::vector<ModelMatrix> matrices_;
  const int rank_;
  const int world_;
  const std::uint64_t seed_;
  std::vector<std::vector<float>> weights_;
  std::vector<std::unique_ptr<Pinned>> pins_;
};

}  // namespace weft::testing
