// Math::ColumnSquares and Math::DivideColumns: together they are the row norm of a tall matrix
// whose rows lie in several places.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/device.h"
#include "weft/device.h"
#include "weft/math.h"

namespace weft {
namespace {

class ColumnNormsTest : public ::testing::Test {
 protected:
  // That all of the device and the host reach.
  float* NewFloats(std::int64_t count) {
    buffers_.push_back(*device_->AllocateHost(std::max<std::int64_t>(count, 1) * sizeof(float)));
    return buffers_.back()->as<float>();
  }
  static Matrix At(float* data, std::int64_t rows, std::int64_t cols) {
    return Matrix::Dense(data, DType::kF32, rows, cols);
  }
  void Finish() { ASSERT_TRUE(stream_->Synchronize(absl::InfiniteDuration()).ok()); }

  std::unique_ptr<Device> device_ = testing::NewDevice();
  Math& math_ = device_->math();
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::unique_ptr<Stream> stream_ = device_->CreateStream("math");
};

RC_GTEST_FIXTURE_PROP(ColumnNormsTest, OfPartsAreThoseOfTheWhole, ()) {
  const auto cols = *rc::gen::inRange<std::int64_t>(1, 300);
  const auto parts =
      *rc::gen::container<std::vector<std::int64_t>>(3, rc::gen::inRange<std::int64_t>(0, 40));
  const float eps = *rc::gen::element(1e-20f, 1e-8f, 1.0f);
  const float gamma = *rc::gen::element(1.0f, 0.15f, -2.0f, 0.0f);
  const float unit = std::ldexp(eps, 60);
  // Up to where the squares of 120 rows stay in range, down to far below eps.
  const double scale = eps * *rc::gen::element(1e-12, 1.0, 1e8, 1e33);
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  std::normal_distribution<double> normal;
  std::int64_t rows = 0;
  for (const std::int64_t part : parts) rows += part;
  float* x = NewFloats(rows * cols);
  float* y = NewFloats(rows * cols);
  float* squares = NewFloats(2 * cols);
  std::fill(squares, squares + 2 * cols, 7.0f);  // what was there before is no part of it
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    // Columns of very different norms, the first one of zeros.
    const std::int64_t j = i % cols;
    const double factor = j == 0 ? 0 : j % 3 == 0 ? 1e-3 : 1;
    x[i] = static_cast<float>(factor * scale * normal(random));
  }
  float* from = x;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    // The last two are added up by the device.
    float* const sums = squares + std::min<std::size_t>(p, 1) * cols;
    RC_ASSERT(math_.ColumnSquares(*stream_, At(from, parts[p], cols), unit, p == 2, sums).ok());
    from += parts[p] * cols;
  }
  Finish();
  for (std::int64_t j = 0; j < cols; ++j) squares[j] += squares[cols + j];
  from = x;
  float* to = y;
  for (const std::int64_t part : parts) {
    const Math::ColumnNorms norms{squares, unit, eps, gamma};
    RC_ASSERT(math_.DivideColumns(*stream_, At(from, part, cols), norms, At(to, part, cols)).ok());
    from += part * cols;
    to += part * cols;
  }
  Finish();
  for (std::int64_t j = 0; j < cols; ++j) {
    long double sum = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      sum += static_cast<long double>(x[i * cols + j]) * x[i * cols + j];
    }
    const double norm = static_cast<double>(std::sqrt(sum));
    for (std::int64_t i = 0; i < rows; ++i) {
      const double expected =
          static_cast<double>(gamma) * x[i * cols + j] / std::max<double>(norm, eps);
      RC_ASSERT(std::abs(y[i * cols + j] - expected) <= 1e-6 * std::abs(expected) + 1e-37);
    }
  }
}

TEST_F(ColumnNormsTest, NumbersThatAreNoneStay) {
  float* x = NewFloats(4);
  float* squares = NewFloats(2);
  float* y = NewFloats(4);
  x[0] = std::nanf("");
  x[1] = x[2] = x[3] = 1;
  ASSERT_TRUE(math_.ColumnSquares(*stream_, At(x, 2, 2), 1, false, squares).ok());
  ASSERT_TRUE(math_.DivideColumns(*stream_, At(x, 2, 2), {squares, 1, 1e-8f, 1}, At(y, 2, 2)).ok());
  Finish();
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[2]));
  EXPECT_NEAR(y[1], std::sqrt(0.5), 1e-6);
}

TEST_F(ColumnNormsTest, BadArgumentsAreRefusedAndEnqueueNothing) {
  float* x = NewFloats(4);
  float* squares = NewFloats(2);
  squares[0] = 5;
  EXPECT_FALSE(math_.ColumnSquares(*stream_, At(x, -1, 2), 1, false, squares).ok());
  EXPECT_FALSE(math_.ColumnSquares(*stream_, At(x, 2, 2), 0, false, squares).ok());
  EXPECT_FALSE(math_.ColumnSquares(*stream_, At(x, 2, 2), std::nanf(""), false, squares).ok());
  EXPECT_FALSE(math_.DivideColumns(*stream_, At(x, 2, 2), {squares, 1, -1, 1}, At(x, 2, 2)).ok());
  EXPECT_FALSE(
      math_.DivideColumns(*stream_, At(x, 2, 2), {squares, 1, 0, INFINITY}, At(x, 2, 2)).ok());
  Finish();
  EXPECT_EQ(squares[0], 5);
}

}  // namespace
}  // namespace weft
