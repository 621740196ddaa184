// A small model with repeatable random weights and gradients, held as one rank holds it.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

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

// One rank's fp32 weights of a model whose matrices all have one layout.
class RankModel {
 public:
  RankModel(std::vector<Shape> shapes, Layout layout, GradientKind kind, int rank, int world,
            std::uint64_t seed)
      : shapes_(std::move(shapes)),
        layout_(layout),
        kind_(kind),
        rank_(rank),
        world_(world),
        seed_(seed) {
    for (std::size_t m = 0; m < shapes_.size(); ++m) {
      weights_.push_back(OwnRows(m, Normal(Size(m), seed_, 1, m)));
    }
  }

  static std::string NameOf(std::size_t m) { return "m" + std::to_string(m); }

  MatrixSpec Spec(std::size_t m, Rule rule) {
    MatrixSpec spec;
    spec.name = NameOf(m);
    spec.rows = shapes_[m].rows;
    spec.cols = shapes_[m].cols;
    spec.weight = weights_[m].data();
    spec.layout = layout_;
    spec.gradient = kind_;
    spec.layer = static_cast<int>(m);
    spec.rule = std::move(rule);
    return spec;
  }

  // This rank's own gradient, whole.
  std::vector<float> LocalGradient(std::size_t m, std::int64_t step, int rank) const {
    return Normal(Size(m), seed_, 2 + static_cast<std::uint64_t>(step), m,
                  static_cast<std::uint64_t>(rank));
  }
  // Mean over the world, summed in rank order.
  std::vector<float> MeanGradient(std::size_t m, std::int64_t step) const {
    std::vector<float> sum(Size(m), 0.0f);
    for (int rank = 0; rank < world_; ++rank) {
      const std::vector<float> part = LocalGradient(m, step, rank);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (float& value : sum) value /= static_cast<float>(world_);
    return sum;
  }
  // What this rank submits.
  std::vector<float> Gradient(std::size_t m, std::int64_t step) const {
    if (kind_ == GradientKind::kLocal) return LocalGradient(m, step, rank_);
    return OwnRows(m, MeanGradient(m, step));
  }

  std::vector<float>& weight(std::size_t m) { return weights_[m]; }
  const std::vector<std::vector<float>>& weights() const { return weights_; }
  std::size_t size() const { return shapes_.size(); }
  const Shape& shape(std::size_t m) const { return shapes_[m]; }
  std::int64_t Size(std::size_t m) const { return shapes_[m].rows * shapes_[m].cols; }

  // Rows of a whole matrix that this rank holds.
  std::vector<float> OwnRows(std::size_t m, const std::vector<float>& whole) const {
    if (layout_ == Layout::kReplicated) return whole;
    const std::vector<std::int64_t> rows = DefaultShardRows(shapes_[m].rows, world_);
    std::int64_t begin = 0;
    for (int rank = 0; rank < rank_; ++rank) begin += rows[rank];
    const auto first = whole.begin() + begin * shapes_[m].cols;
    return {first, first + rows[rank_] * shapes_[m].cols};
  }

 private:
  const std::vector<Shape> shapes_;
  const Layout layout_;
  const GradientKind kind_;
  const int rank_;
  const int world_;
  const std::uint64_t seed_;
  std::vector<std::vector<float>> weights_;
};

}  // namespace weft::testing
