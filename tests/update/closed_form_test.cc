// What Newton-Schulz must give where the singular values are known without any decomposition.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/halves.h"
#include "tests/update/runs.h"

namespace weft {
namespace {

using testing::Orthogonalize;

std::vector<std::vector<int>> Forms() {
  return {{}, {0}, {2, 2, 1}, {1, 2, 2}, {2, 1, 2}, {2, 3}, {3, 2}, {1, 1, 1, 1, 1}, {5}};
}

// How far one rounding of relative size `unit` per iteration, of the terms of a + b s^2 + c s^4,
// carries the scalar run off: the terms cancel (by a factor of 40 in polar_express at s = 1), and
// later iterations pass on what they are given.
double ScalarError(const NewtonSchulzOptions& options, double s, double unit) {
  double error = unit;
  for (const auto& [a, b, c] : testing::TriplesOf(options)) {
    const double x = s * s;
    const double p = a + x * (b + x * c);
    const double cancellation = (std::abs(a) + x * (std::abs(b) + x * std::abs(c))) / std::abs(p);
    const double passed_on = std::abs((a + x * (3 * b + x * 5 * c)) / p);
    error = passed_on * error + cancellation * unit;
    s *= p;
  }
  return error;
}

// x = f g / ||g||_F for every form, coefficient set and operand type. `skip_unsafe` leaves out the
// forms that the segment analysis rejects for 16-bit types.
void ExpectScaled(const std::vector<double>& g, std::int64_t rows, std::int64_t cols, double s,
                  double tolerance_f32, bool skip_unsafe) {
  const auto device = testing::NewDevice();
  double norm = 0;
  for (const double value : g) norm += value * value;
  norm = std::sqrt(norm);
  for (const DType type : kDTypes) {
    for (const Coefficients& coefficients : testing::AllCoefficients()) {
      for (const auto& form : Forms()) {
        const bool gram = !form.empty() && form != std::vector<int>{0};
        if (skip_unsafe && type != DType::kF32 && gram &&
            !AnalyzeSegments(coefficients, form, SpuriousEigenvalue(type)).safe) {
          continue;
        }
        const NewtonSchulzOptions options = testing::Options(coefficients, type, form);
        const double factor = testing::ScalarFactor(options, s) / s;
        std::vector<double> expected = g;
        for (double& value : expected) value *= factor / norm;
        const double tolerance = type == DType::kF32
                                     ? tolerance_f32
                                     : ScalarError(options, s, testing::RoundingError(type, 1));
        EXPECT_LE(testing::RelativeError(Orthogonalize(*device, options, g, rows, cols), expected),
                  tolerance)
            << testing::Describe(options) << " " << rows << " x " << cols;
      }
    }
  }
}

TEST(ClosedForm, TheScalarFactorsAreThePublishedOnes) {
  EXPECT_NEAR(testing::ScalarFactor(testing::Options(Coefficients::Quintic(), DType::kF32, {}), 1),
              0.69644, 5e-6);
  EXPECT_NEAR(testing::ScalarFactor(testing::Options(Coefficients::You(), DType::kF32, {}), 1),
              0.97835, 5e-6);
  EXPECT_NEAR(
      testing::ScalarFactor(testing::Options(Coefficients::PolarExpress(), DType::kF32, {}), 1),
      1.01903, 5e-6);
}

TEST(ClosedForm, OneRowOrColumn) {
  ExpectScaled(testing::Gaussian(37, 1), 1, 37, 1, 1e-5, false);
  ExpectScaled(testing::Gaussian(37, 2), 37, 1, 1, 1e-5, false);
  ExpectScaled({-3}, 1, 1, 1, 1e-5, false);
}

// Signs and equal sizes: the only outer products whose 16-bit roundings stay of rank one. Those of
// any other would be singular values of their own, which every polynomial here raises.
TEST(ClosedForm, OuterProductOfSigns) {
  for (const auto& [rows, cols] : {std::pair<int, int>{12, 40}, {40, 12}}) {
    std::vector<double> g;
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < cols; ++j) g.push_back((i % 3 == 0) == (j % 5 < 2) ? 0.37f : -0.37f);
    }
    ExpectScaled(g, rows, cols, 1, 1e-4, true);
  }
}

TEST(ClosedForm, AnyOuterProductInFp32) {
  const std::vector<double> left = testing::Gaussian(12, 3);
  const std::vector<double> right = testing::Gaussian(40, 4);
  std::vector<double> g;
  for (const double x : left) {
    for (const double y : right) g.push_back(static_cast<float>(x * y));
  }
  const auto device = testing::NewDevice();
  for (const Coefficients& coefficients : testing::AllCoefficients()) {
    for (const std::vector<int>& form : {std::vector<int>{}, {0}, {2, 2, 1}}) {
      const auto options = testing::Options(coefficients, DType::kF32, form);
      const double factor = testing::ScalarFactor(options, 1);
      double norm = 0;
      for (const double value : g) norm += value * value;
      std::vector<double> expected = g;
      for (double& value : expected) value *= factor / std::sqrt(norm);
      EXPECT_LE(testing::RelativeError(Orthogonalize(*device, options, g, 12, 40), expected), 5e-4)
          << testing::Describe(options);
    }
  }
}

TEST(ClosedForm, ScaledIdentity) {
  std::vector<double> g(64 * 64, 0.0);
  for (int i = 0; i < 64; ++i) g[i * 65] = 42;
  ExpectScaled(g, 64, 64, 1.0 / 8, 1e-5, false);
}

TEST(ClosedForm, ZeroGivesExactlyZero) {
  const auto device = testing::NewDevice();
  const std::vector<double> zero(6 * 10, 0.0);
  for (const DType type : kDTypes) {
    for (const Coefficients& coefficients : testing::AllCoefficients()) {
      for (const auto& form : Forms()) {
        const auto options = testing::Options(coefficients, type, form);
        EXPECT_EQ(Orthogonalize(*device, options, zero, 6, 10), std::vector<float>(60, 0.0f))
            << testing::Describe(options);
      }
    }
  }
}

TEST(ClosedForm, EmptyMatricesAreNoOps) {
  const auto device = testing::NewDevice();
  EXPECT_TRUE(Orthogonalize(*device, {}, {}, 0, 5).empty());
  EXPECT_TRUE(Orthogonalize(*device, {}, {}, 5, 0).empty());
  EXPECT_EQ((*update::NewtonSchulz::Create(*device, {}, 0, 5))->workspace_bytes(), 0u);
}

}  // namespace
}  // namespace weft
