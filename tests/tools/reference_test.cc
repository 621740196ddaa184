// The reference is checked against closed forms and triple loops, never against Weft.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/support/seed.h"
#include "tools/reference/matmul.h"
#include "tools/reference/update.h"

namespace weft::reference {
namespace {

using Vector = std::vector<double>;

Vector Normal(std::int64_t count, std::uint64_t stream) {
  std::mt19937_64 random(testing::Seed() + stream);
  std::normal_distribution<double> normal;
  Vector values(count);
  for (double& value : values) value = normal(random);
  return values;
}

double Norm(const Vector& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

MuonSettings Quintic() {
  MuonSettings settings;
  settings.iterations.assign(5, {3.4445, -4.7750, 2.0315});
  return settings;
}

double Map(const MuonSettings& settings, double s) {
  for (const Polynomial& p : settings.iterations) {
    s = p.a * s + p.b * s * s * s + p.c * s * s * s * s * s;
  }
  return s;
}

RC_GTEST_PROP(Reference, MatMulIsTheTripleLoop, ()) {
  const auto extent = [] { return *rc::gen::inRange<std::int64_t>(0, 40); };
  const std::int64_t m = extent(), n = extent(), k = *rc::gen::inRange<std::int64_t>(0, 600);
  const int threads = *rc::gen::inRange(1, 4);
  const Vector a = Normal(m * k, 1), b = Normal(k * n, 2);
  const Vector c = MatMul(a, b, m, k, n, threads);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        sum += a[i * k + p] * b[p * n + j];
        size += std::abs(a[i * k + p] * b[p * n + j]);
      }
      RC_ASSERT(std::abs(c[i * n + j] - sum) <= 1e-13 * (size + 1e-300));
    }
  }
}

TEST(Reference, MatMulCrossesItsColumnBlocks) {
  const std::int64_t m = 3, k = 2, n = 1003;
  const Vector a = Normal(m * k, 3), b = Normal(k * n, 4);
  const Vector c = MatMul(a, b, m, k, n, 2);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      EXPECT_NEAR(c[i * n + j], a[i * k] * b[j] + a[i * k + 1] * b[n + j], 1e-13);
    }
  }
}

// A rank-1 input has the one singular value 1 after normalisation: the result is f * G / ||G||_F.
TEST(Reference, RankOneHasAClosedForm) {
  struct Case {
    std::vector<Polynomial> iterations;
    double f;
  };
  const std::vector<Case> cases = {{std::vector<Polynomial>(5, {3.4445, -4.7750, 2.0315}), 0.69644},
                                   {{{4.0848, -6.8946, 2.9270},
                                     {3.9505, -6.3029, 2.6377},
                                     {3.7418, -5.5913, 2.3037},
                                     {2.8769, -3.1427, 1.2046},
                                     {2.8366, -3.0525, 1.2012}},
                                    0.97835}};
  const std::vector<std::pair<std::int64_t, std::int64_t>> shapes = {
      {1, 9}, {9, 1}, {1, 1}, {5, 7}, {7, 5}};
  for (const Case& example : cases) {
    for (const auto& [rows, cols] : shapes) {
      const Vector left = Normal(rows, 5), right = Normal(cols, 6);
      Vector g(rows * cols);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < cols; ++j) g[i * cols + j] = left[i] * right[j];
      }
      MuonSettings settings;
      settings.iterations = example.iterations;
      const Vector direction = Orthogonalize(settings, g, rows, cols);
      const double norm = Norm(g);
      for (std::size_t i = 0; i < g.size(); ++i) {
        EXPECT_NEAR(direction[i], example.f * g[i] / norm, 1e-5);
      }
    }
  }
}

TEST(Reference, ScaledIdentityMapsEverySingularValueAlike) {
  constexpr std::int64_t n = 64;
  Vector identity(n * n, 0.0);
  for (std::int64_t i = 0; i < n; ++i) identity[i * n + i] = 3.0;
  const Vector direction = Orthogonalize(Quintic(), identity, n, n);
  const double expected = Map(Quintic(), 1.0 / 8);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      EXPECT_NEAR(direction[i * n + j], i == j ? expected : 0.0, 1e-12);
    }
  }
}

// Columns that are orthogonal: their lengths are the singular values.
TEST(Reference, SingularValuesFollowThePolynomial) {
  constexpr std::int64_t rows = 6, cols = 3;
  const double lengths[] = {2.0, 0.5, 0.1};
  Vector g(rows * cols, 0.0);
  for (std::int64_t j = 0; j < cols; ++j) g[(2 * j) * cols + j] = lengths[j];
  const double norm = Norm(g);
  const Vector direction = Orthogonalize(Quintic(), g, rows, cols);
  for (std::int64_t j = 0; j < cols; ++j) {
    EXPECT_NEAR(direction[2 * j * cols + j], Map(Quintic(), lengths[j] / norm), 1e-12);
  }
}

RC_GTEST_PROP(Reference, OrthogonalizeCommutesWithTransposition, ()) {
  const auto rows = *rc::gen::inRange<std::int64_t>(1, 20);
  const auto cols = *rc::gen::inRange<std::int64_t>(1, 20);
  const Vector g = Normal(rows * cols, 7);
  const Vector one = Transpose(Orthogonalize(Quintic(), g, rows, cols), rows, cols);
  const Vector other = Orthogonalize(Quintic(), Transpose(g, rows, cols), cols, rows);
  for (std::size_t i = 0; i < one.size(); ++i) RC_ASSERT(std::abs(one[i] - other[i]) < 1e-9);
}

TEST(Reference, DirectionIgnoresTheScaleOfTheGradient) {
  const Vector g = Normal(8 * 5, 8);
  const Vector expected = Orthogonalize(Quintic(), g, 8, 5);
  for (const double factor : {1e-20, 1e-6, 1e20, 1e200}) {
    Vector scaled = g;
    for (double& value : scaled) value *= factor;
    const Vector direction = Orthogonalize(Quintic(), scaled, 8, 5);
    for (std::size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(direction[i], expected[i], 1e-9);
  }
}

TEST(Reference, FloorGivesZeroAndClampGivesTorchsDivisor) {
  MuonSettings settings = Quintic();
  settings.norm_floor = 1e-3;
  const Vector small(4, 1e-8);
  EXPECT_EQ(Orthogonalize(settings, small, 2, 2), Vector(4, 0.0));
  EXPECT_EQ(Orthogonalize(settings, Vector(4, 0.0), 2, 2), Vector(4, 0.0));
  settings.clamp = true;
  // Norm 2e-8 over 1e-3: far in the linear range, where each iteration multiplies by a.
  const double expected = 1e-8 / 1e-3 * std::pow(3.4445, 5);
  for (const double value : Orthogonalize(settings, small, 2, 2)) {
    EXPECT_NEAR(value, expected, 1e-4 * expected);
  }
}

TEST(Reference, MuonStepByHandOnOneElement) {
  MuonSettings settings = Quintic();
  settings.lr = 0.5;
  settings.momentum = 0.75;
  settings.weight_decay = 0.125;
  const double f = Map(settings, 1.0);
  Vector momentum = {-1.0}, weight = {2.0};
  // M = 0.75 * -1 + 0.25 * 2 = -0.25; with Nesterov U = 0.75 * -0.25 + 0.25 * 2 = 0.3125 > 0.
  MuonStep(settings, 1, 1, {2.0}, momentum, weight);
  EXPECT_DOUBLE_EQ(momentum[0], -0.25);
  EXPECT_NEAR(weight[0], 2.0 * (1 - 0.0625) - 0.5 * f, 1e-12);
  settings.nesterov = false;
  momentum = {-1.0};
  weight = {2.0};
  MuonStep(settings, 1, 1, {2.0}, momentum, weight);
  EXPECT_NEAR(weight[0], 2.0 * (1 - 0.0625) + 0.5 * f, 1e-12);
}

TEST(Reference, ScalesOfTallAndWide) {
  MuonSettings settings = Quintic();
  settings.lr = 1;
  settings.momentum = 0;
  const double f = Map(settings, 1.0);
  const auto step = [&](std::int64_t rows, std::int64_t cols) {
    Vector gradient(rows * cols, 0.0), momentum(rows * cols, 0.0), weight(rows * cols, 0.0);
    gradient[0] = 3.0;
    MuonStep(settings, rows, cols, gradient, momentum, weight);
    return -weight[0] / f;
  };
  EXPECT_NEAR(step(9, 1), 3.0, 1e-12);
  EXPECT_NEAR(step(1, 9), 1.0, 1e-12);
  settings.match_rms_adamw = true;
  EXPECT_NEAR(step(25, 4), 1.0, 1e-12);
  EXPECT_NEAR(step(4, 25), 1.0, 1e-12);
}

// With a constant gradient both corrected moments are exact: each step moves by lr * sign(g).
TEST(Reference, AdamWWithConstantGradientMovesByTheRate) {
  AdamWSettings settings;
  settings.lr = 0.25;
  settings.eps = 0;
  settings.weight_decay = 0;
  Vector m = {0, 0}, v = {0, 0}, weight = {1, 1};
  for (int t = 1; t <= 4; ++t) {
    AdamWStep(settings, t, {0.5, -3.0}, m, v, weight);
    EXPECT_NEAR(weight[0], 1 - 0.25 * t, 1e-12);
    EXPECT_NEAR(weight[1], 1 + 0.25 * t, 1e-12);
  }
  settings.weight_decay = 0.5;
  m = v = {0, 0};
  weight = {1, 2};
  AdamWStep(settings, 1, {1.0, 1.0}, m, v, weight);
  EXPECT_NEAR(weight[0], 1 * (1 - 0.125) - 0.25, 1e-12);
  EXPECT_NEAR(weight[1], 2 * (1 - 0.125) - 0.25, 1e-12);
}

}  // namespace
}  // namespace weft::reference
