// Math::RowNorm against float64.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "tests/device/operand.h"
#include "tests/support/device.h"
#include "weft/device.h"
#include "weft/math.h"

namespace weft {
namespace {

using testing::Operand;

class RowNormTest : public ::testing::Test {
 protected:
  absl::Status Run(Operand& x, bool columns, float eps, float gamma, Operand& y) {
    absl::Status status = math_.RowNorm(*stream_, x.matrix(), columns, eps, gamma, y.matrix());
    status.Update(stream_->Synchronize(absl::InfiniteDuration()));
    return status;
  }

  std::unique_ptr<Device> device_ = testing::NewDevice();
  Math& math_ = device_->math();
  std::unique_ptr<Stream> stream_ = device_->CreateStream("math");
};

// gamma * x / max(||row or column of x||, eps), 0 where the norm is.
double Reference(const Operand& x, bool columns, double eps, double gamma, std::int64_t b,
                 std::int64_t i, std::int64_t j) {
  long double sum = 0;
  for (std::int64_t k = 0; k < (columns ? x.rows() : x.cols()); ++k) {
    const long double value = columns ? x.at(b, k, j) : x.at(b, i, k);
    sum += value * value;
  }
  const double norm = static_cast<double>(std::sqrt(sum));
  return norm == 0 ? 0 : gamma * x.at(b, i, j) / std::max(norm, eps);
}

RC_GTEST_FIXTURE_PROP(RowNormTest, AgreesWithFloat64, ()) {
  const auto extent = [] { return *rc::gen::inRange<std::int64_t>(0, 40); };
  const auto type = [] { return *rc::gen::elementOf(kDTypes); };
  const std::int64_t rows = extent();
  // More columns than one block of the column sums has.
  const std::int64_t cols = extent() * *rc::gen::element<std::int64_t>(1, 20);
  const std::int64_t batch = *rc::gen::inRange<std::int64_t>(1, 4);
  const bool columns = *rc::gen::arbitrary<bool>();
  const float gamma = *rc::gen::element(1.0f, 0.15f, -2.0f, 0.0f);
  const float eps = *rc::gen::element(0.0f, 1e-8f, 3.0f);
  Operand x(type(), rows, cols, batch, *rc::gen::inRange(0, 3), *rc::gen::inRange(0, 3));
  Operand y(type(), rows, cols, batch, *rc::gen::inRange(0, 3), *rc::gen::inRange(0, 3));
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  // Within the range of f16 where that is the type.
  const double scale = x.dtype() == DType::kF16 ? *rc::gen::element(1e-4, 1.0, 1e3)
                                                : *rc::gen::element(1e-20, 1.0, 1e18);
  x.FillNormal(random);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < rows; ++i) {
      // Rows of very different norms, the first one of zeros.
      const double factor = i == 0 ? 0 : scale * (i % 3 == 0 ? 1e-3 : 1);
      for (std::int64_t j = 0; j < cols; ++j) x.set(b, i, j, x.at(b, i, j) * factor);
    }
  }
  RC_ASSERT(Run(x, columns, eps, gamma, y) == absl::OkStatus());
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        const double expected = Reference(x, columns, eps, gamma, b, i, j);
        RC_ASSERT(std::abs(y.at(b, i, j) - expected) <=
                  0x1p-24 * std::abs(expected) +
                      testing::RoundingError(y.dtype(), std::abs(expected)));
      }
    }
  }
  RC_ASSERT(y.PaddingIntact());
}

RC_GTEST_FIXTURE_PROP(RowNormTest, ColumnsAreTheRowsOfTheTranspose, ()) {
  const std::int64_t rows = *rc::gen::inRange<std::int64_t>(1, 30);
  const std::int64_t cols = *rc::gen::inRange<std::int64_t>(1, 300);
  Operand x(DType::kF32, rows, cols), t(DType::kF32, cols, rows);
  Operand y(DType::kF32, rows, cols), u(DType::kF32, cols, rows);
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  x.FillNormal(random);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) t.set(0, j, i, x.at(0, i, j));
  }
  RC_ASSERT(Run(x, false, 1e-8f, 0.15f, y) == absl::OkStatus());
  RC_ASSERT(Run(t, true, 1e-8f, 0.15f, u) == absl::OkStatus());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      RC_ASSERT(std::abs(y.at(0, i, j) - u.at(0, j, i)) <= 0x1p-23 * std::abs(y.at(0, i, j)));
    }
  }
}

TEST_F(RowNormTest, MayWriteOverItsInput) {
  for (const bool columns : {false, true}) {
    Operand x(DType::kF32, 7, 600, 2, 1, 3);
    std::mt19937_64 random(3);
    x.FillNormal(random);
    Operand y = x, before = x;
    ASSERT_TRUE(Run(before, columns, 0, 2, y).ok());
    ASSERT_TRUE(Run(x, columns, 0, 2, x).ok());
    EXPECT_EQ(x.bytes(), y.bytes());
  }
}

TEST_F(RowNormTest, KeepsWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool columns : {false, true}) {
    Operand x(DType::kF32, 2, 2), y(DType::kF32, 2, 2);
    x.set(0, 0, 0, nan);
    x.set(0, 0, 1, 3);
    x.set(0, 1, 0, 3);
    x.set(0, 1, 1, 4);
    // Also where the norm is below eps.
    ASSERT_TRUE(Run(x, columns, 100, 1, y).ok());
    EXPECT_TRUE(std::isnan(y.at(0, 0, 0)));
    EXPECT_TRUE(std::isnan(columns ? y.at(0, 1, 0) : y.at(0, 0, 1)));
    EXPECT_EQ(y.at(0, 1, 1), 4 / 100.0f);
  }
}

TEST_F(RowNormTest, RefusesBadArguments) {
  Operand x(DType::kF32, 2, 3), y(DType::kF32, 2, 3), other(DType::kF32, 3, 2);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(Run(x, false, 0, 1, other).code(), invalid);
  EXPECT_EQ(Run(x, true, 0, 1, other).code(), invalid);
  EXPECT_EQ(Run(x, false, -1, 1, y).code(), invalid);
  EXPECT_EQ(Run(x, false, NAN, 1, y).code(), invalid);
  EXPECT_EQ(Run(x, false, 0, INFINITY, y).code(), invalid);
  EXPECT_EQ(Run(x, false, 0, 1, y), absl::OkStatus());
}

}  // namespace
}  // namespace weft
