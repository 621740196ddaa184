// Newton-Schulz in every precision and form against the serial float64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/support/device.h"
#include "tests/update/runs.h"

namespace weft {
namespace {

using testing::Gaussian;
using testing::Orthogonalize;
using testing::ReferenceNewtonSchulz;
using testing::RelativeError;

struct Input {
  std::int64_t rows, cols;
  std::vector<double> g;
};

// A diagonal spectrum between two Gaussian factors.
Input Mixed(std::int64_t rows, std::int64_t cols, const std::vector<double>& spectrum,
            std::uint64_t seed) {
  const auto rank = static_cast<std::int64_t>(spectrum.size());
  const std::vector<double> left = Gaussian(rows * rank, seed);
  const std::vector<double> right = Gaussian(rank * cols, seed + 1);
  Input input{rows, cols, {}};
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < rank; ++k) {
        sum += left[i * rank + k] * spectrum[k] * right[k * cols + j];
      }
      input.g.push_back(static_cast<float>(sum));
    }
  }
  return input;
}

// What the direction of a Gaussian matrix stays within in a 16-bit type; `rows` is the shorter
// side. Few rows do not average the rounding of their products.
double Bound(DType type, std::int64_t rows) {
  if (type == DType::kF16) return rows < 16 ? 1e-2 : 4e-3;
  return rows > 1 && rows < 8 ? 1e-1 : 3e-2;
}

class AccuracyTest : public ::testing::Test {
 protected:
  double Error(const NewtonSchulzOptions& options, const Input& input) {
    return RelativeError(Orthogonalize(*device_, options, input.g, input.rows, input.cols),
                         ReferenceNewtonSchulz(options, input.g, input.rows, input.cols));
  }

  std::unique_ptr<Device> device_ = testing::NewDevice();
};

TEST_F(AccuracyTest, GaussianMatrices) {
  std::vector<Input> inputs;
  for (const auto& [rows, cols] : {std::pair<int, int>{40, 96}, {96, 40}, {64, 64}, {64, 70}}) {
    for (const double scale : {1.0, 1e-20, 1e20}) {
      inputs.push_back({rows, cols, Gaussian(rows * cols, 11, scale)});
    }
  }
  inputs.push_back({1, 50, Gaussian(50, 3)});
  inputs.push_back({50, 1, Gaussian(50, 4)});
  inputs.push_back({128, 486, Gaussian(128 * 486, 5)});
  for (const Coefficients& coefficients : testing::AllCoefficients()) {
    for (const Input& input : inputs) {
      const std::string where =
          coefficients.name + " " + std::to_string(input.rows) + " x " + std::to_string(input.cols);
      EXPECT_LE(Error(testing::Options(coefficients, DType::kF32, {0}), input), 1e-5) << where;
      EXPECT_LE(Error(testing::Options(coefficients, DType::kF32, {}), input), 3e-5) << where;
      for (const DType type : {DType::kBF16, DType::kF16}) {
        for (const std::vector<int>& segments : {std::vector<int>{0}, {}}) {
          EXPECT_LE(Error(testing::Options(coefficients, type, segments), input),
                    Bound(type, std::min(input.rows, input.cols)))
              << where << " " << Name(type);
        }
      }
    }
  }
}

TEST_F(AccuracyTest, SegmentsGiveWhatPlainNewtonSchulzGives) {
  const Input input{48, 120, Gaussian(48 * 120, 21)};
  for (const Coefficients& coefficients : testing::AllCoefficients()) {
    for (const std::vector<int>& segments :
         {std::vector<int>{2, 2, 1}, {1, 2, 2}, {2, 1, 2}, {2, 3}, {1, 1, 1, 1, 1}}) {
      const auto options = testing::Options(coefficients, DType::kF32, segments);
      EXPECT_LE(Error(options, input), 3e-5) << testing::Describe(options);
    }
  }
}

TEST_F(AccuracyTest, IllConditionedAndRankDeficientAreNoWorseThanPlain) {
  std::vector<Input> inputs;
  for (const int decades : {4, 6}) {
    std::vector<double> spectrum;
    for (int i = 0; i < 48; ++i) spectrum.push_back(std::pow(10.0, -decades * i / 47.0));
    inputs.push_back(Mixed(48, 120, spectrum, 31));
    inputs.push_back(Mixed(120, 48, spectrum, 33));
  }
  for (const int rank : {1, 8, 24}) {
    inputs.push_back(Mixed(48, 120, std::vector<double>(rank, 1.0), 35));
  }
  for (const DType type : kDTypes) {
    for (const Coefficients& coefficients : testing::AllCoefficients()) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const double plain = Error(testing::Options(coefficients, type, {0}), inputs[i]);
        const double gram = Error(testing::Options(coefficients, type, {}), inputs[i]);
        EXPECT_LE(gram, 1.5 * plain)
            << coefficients.name << " " << Name(type) << " input " << i << ", plain " << plain;
      }
    }
  }
}

// Why LongestSegment() is 2 in fp32 and fp16, and that what is chosen with it stays near plain NS.
TEST_F(AccuracyTest, LongerSegmentsCostAccuracy) {
  std::vector<double> spectrum;
  for (int i = 0; i < 48; ++i) spectrum.push_back(std::pow(10.0, -2 * i / 47.0));
  const Input input = Mixed(48, 120, spectrum, 37);
  for (const Coefficients& coefficients : testing::AllCoefficients()) {
    const auto error = [&](DType type, std::vector<int> segments) {
      return Error(testing::Options(coefficients, type, std::move(segments)), input);
    };
    EXPECT_GT(error(DType::kF32, {2, 3}), 2 * error(DType::kF32, {0})) << coefficients.name;
    EXPECT_LT(error(DType::kF32, {}), 2.5 * error(DType::kF32, {0})) << coefficients.name;
    EXPECT_LE(error(DType::kF32, {}), 3e-5) << coefficients.name;
    EXPECT_GT(error(DType::kF16, {2, 3}), 1.5 * error(DType::kF16, {0})) << coefficients.name;
    EXPECT_LT(error(DType::kF16, {}), 1.5 * error(DType::kF16, {0})) << coefficients.name;
    // Who asks for it in fp16 still gets more than bf16 gives.
    EXPECT_LT(error(DType::kF16, {2, 3}), error(DType::kBF16, {0})) << coefficients.name;
  }
}

// Three matrices in one run, one a hundred times larger, one zero, equal three runs.
TEST_F(AccuracyTest, ABatchEqualsItsMatricesAlone) {
  constexpr int kRows = 8;
  constexpr int kCols = 12;
  for (const auto& [rows, cols] : {std::pair<int, int>{kRows, kCols}, {kCols, kRows}}) {
    std::vector<std::vector<double>> matrices = {Gaussian(kRows * kCols, 41),
                                                 Gaussian(kRows * kCols, 42, 100),
                                                 std::vector<double>(kRows * kCols, 0.0)};
    std::vector<double> stacked;
    for (const auto& matrix : matrices) stacked.insert(stacked.end(), matrix.begin(), matrix.end());
    for (const DType type : kDTypes) {
      for (const std::vector<int>& segments : {std::vector<int>{0}, {2, 2, 1}}) {
        const auto options = testing::Options(Coefficients::Quintic(), type, segments);
        const std::vector<float> batch = Orthogonalize(*device_, options, stacked, rows, cols, 3);
        for (int i = 0; i < 3; ++i) {
          const std::vector<float> part(batch.begin() + i * kRows * kCols,
                                        batch.begin() + (i + 1) * kRows * kCols);
          const std::vector<float> alone =
              Orthogonalize(*device_, options, matrices[i], rows, cols);
          EXPECT_LE(RelativeError(part, std::vector<double>(alone.begin(), alone.end())),
                    type == DType::kF32 ? 1e-5 : Bound(type, std::min(kRows, kCols)))
              << testing::Describe(options) << " matrix " << i;
        }
        EXPECT_EQ(std::vector<float>(batch.end() - kRows * kCols, batch.end()),
                  std::vector<float>(kRows * kCols, 0.0f));
      }
    }
  }
}

TEST_F(AccuracyTest, FewRowsIn16Bits) {
  for (const int rows : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    for (const int cols : {rows, 2 * rows + 3}) {
      for (int seed = 100; seed < 120; ++seed) {
        const Input input{rows, cols, Gaussian(rows * cols, seed)};
        for (const DType type : {DType::kBF16, DType::kF16}) {
          EXPECT_LE(Error(testing::Options(Coefficients::Quintic(), type, {0}), input),
                    Bound(type, rows))
              << rows << " x " << cols << ", seed " << seed << " " << Name(type);
        }
      }
    }
  }
}

// The direction does not depend on the gradient's scale: the floor lies far below, at 1e-30.
TEST_F(AccuracyTest, ScaleOfTheGradientDoesNotMatter) {
  const std::vector<double> g = Gaussian(64 * 64, 51);
  for (const DType type : kDTypes) {
    const auto options = testing::Options(Coefficients::Quintic(), type, {});
    const std::vector<float> unit = Orthogonalize(*device_, options, g, 64, 64);
    const std::vector<double> expected(unit.begin(), unit.end());
    for (const double scale : {1e-6, 1e-8, 1e-10, 1e-20}) {
      std::vector<double> scaled = g;
      for (double& value : scaled) value = static_cast<float>(value * scale);
      EXPECT_LE(RelativeError(Orthogonalize(*device_, options, scaled, 64, 64), expected), 1e-3)
          << scale << " " << Name(type);
    }
  }
}

TEST_F(AccuracyTest, TheFloorGivesZeroOrClampsAsAsked) {
  NewtonSchulzOptions options;
  options.norm_floor = 10;
  EXPECT_EQ(Orthogonalize(*device_, options, {3, 4}, 1, 2), (std::vector<float>{0, 0}));
  options.clamp_to_floor = true;
  const double factor = testing::ScalarFactor(options, 0.5);
  EXPECT_LE(
      RelativeError(Orthogonalize(*device_, options, {3, 4}, 1, 2), {0.6 * factor, 0.8 * factor}),
      1e-5);
}

// Shapes that are no multiple of any vector or tile width, alone and as a batch.
TEST_F(AccuracyTest, OddShapesIn16Bits) {
  for (const auto& [rows, cols] : {std::pair<int, int>{126, 62}, {130, 66}, {7, 3}}) {
    const std::vector<double> g = Gaussian(rows * cols, 61);
    std::vector<double> twice = g;
    twice.insert(twice.end(), g.begin(), g.end());
    for (const DType type : {DType::kBF16, DType::kF16}) {
      for (const Coefficients& coefficients : testing::AllCoefficients()) {
        const auto plain = testing::Options(coefficients, type, {0});
        const auto chosen = testing::Options(coefficients, type, {});
        const auto expected = ReferenceNewtonSchulz(plain, g, rows, cols);
        const double bound = std::min(Bound(type, std::min(rows, cols)), 3e-2);
        EXPECT_LE(RelativeError(Orthogonalize(*device_, plain, g, rows, cols), expected), bound);
        EXPECT_LE(RelativeError(Orthogonalize(*device_, chosen, g, rows, cols), expected),
                  4 * bound / 3)
            << coefficients.name << " " << rows << " x " << cols;
        const std::vector<float> both = Orthogonalize(*device_, chosen, twice, rows, cols, 2);
        for (int i = 0; i < 2; ++i) {
          const std::vector<float> part(both.begin() + i * rows * cols,
                                        both.begin() + (i + 1) * rows * cols);
          EXPECT_LE(RelativeError(part, expected), 4 * bound / 3) << coefficients.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
