#include "device/host/kernels.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "device/host/bf16.h"
#include "tests/device/operand.h"

namespace weft::device {
namespace {

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f), 0x3f80);             // tie, even below
  EXPECT_EQ(ToBf16(1.0f + 3 * 0x1p-8f), 0x3f82);         // tie, even above
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);  // just above the tie
  EXPECT_EQ(ToBf16(-2.0f), 0xc000);
  EXPECT_EQ(ToBf16(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_EQ(ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  // A NaN whose payload lies in the dropped half only.
  EXPECT_TRUE(std::isnan(FromBf16(ToBf16(std::bit_cast<float>(0x7f800001u)))));
}

RC_GTEST_PROP(Bf16Law, AgreesWithRoundingByArithmetic, ()) {
  const auto value = std::bit_cast<float>(*rc::gen::arbitrary<std::uint32_t>());
  RC_PRE(std::isfinite(value));
  const double expected = testing::RoundToBf16(value);
  if (std::abs(expected) > 3.39e38) {
    RC_SUCCEED("rounds to infinity");
  }
  RC_ASSERT(FromBf16(ToBf16(value)) == static_cast<float>(expected));
}

TEST(FrobeniusNorm, NeitherOverflowsNorUnderflows) {
  for (const float scale : {1e-44f, 1e-30f, 1e-20f, 1.0f, 1e20f, 1e38f}) {
    const std::vector<float> u(25, scale);
    EXPECT_NEAR(FrobeniusNorm(u.data(), 5, 5, 5) / scale, 5, 1e-12) << scale;
  }
}

RC_GTEST_PROP(FrobeniusNormLaw, AgreesWithASerialSum, ()) {
  const std::int64_t rows = *rc::gen::inRange(0, 12);
  const std::int64_t cols = *rc::gen::inRange(0, 60);
  const std::int64_t stride = cols + *rc::gen::inRange(0, 4);
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  std::normal_distribution<float> normal;
  std::vector<float> u(static_cast<std::size_t>(rows * stride + 1));
  for (float& value : u) value = normal(random);
  long double sum = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      sum += static_cast<long double>(u[i * stride + j]) * u[i * stride + j];
    }
  }
  RC_ASSERT(std::abs(FrobeniusNorm(u.data(), rows, cols, stride) -
                     static_cast<double>(std::sqrt(sum))) <= 1e-13 * std::sqrt(1.0 + rows * cols));
}

}  // namespace
}  // namespace weft::device
