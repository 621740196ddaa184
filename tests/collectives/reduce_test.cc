#include "collectives/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "tests/support/halves.h"

namespace weft::collectives {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

float Reduced(const std::vector<float>& values, ReduceOp op) {
  std::vector<const void*> sources;
  for (const float& value : values) sources.push_back(&value);
  float result = 0;
  ReduceSources(sources, &result, 1, DType::kF32, op);
  return result;
}

std::uint16_t ReducedHalves(DType type, const std::vector<std::uint16_t>& values, ReduceOp op) {
  std::vector<const void*> sources;
  for (const std::uint16_t& value : values) sources.push_back(&value);
  std::uint16_t result = 0;
  ReduceSources(sources, &result, 1, type, op);
  return result;
}

TEST(ReduceSources, ANanAnywhereGivesNan) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    for (const std::vector<float>& values :
         {std::vector<float>{kNan, 1, 2}, {1, kNan, 2}, {1, 2, kNan}, {kNan}, {kInf, kNan}}) {
      EXPECT_TRUE(std::isnan(Reduced(values, op)));
    }
  }
  EXPECT_GT(ReducedHalves(DType::kBF16, {0x3f80, 0x7f81, 0x3f80}, ReduceOp::kMax) & 0x7fff, 0x7f80);
  EXPECT_GT(ReducedHalves(DType::kF16, {0x3c00, 0x7c01, 0x3c00}, ReduceOp::kMax) & 0x7fff, 0x7c00);
}

TEST(ReduceSources, KeepsInfinities) {
  EXPECT_EQ(Reduced({1, -kInf, 2}, ReduceOp::kSum), -kInf);
  EXPECT_EQ(Reduced({-kInf, -3}, ReduceOp::kMax), -3);
  EXPECT_TRUE(std::isnan(Reduced({kInf, -kInf}, ReduceOp::kSum)));
}

TEST(ReduceSources, AddsInTheOrderOfTheSources) {
  EXPECT_EQ(Reduced({1e8f, -1e8f, 1}, ReduceOp::kSum), 1);
  EXPECT_EQ(Reduced({1, 1e8f, -1e8f}, ReduceOp::kSum), 0);
}

TEST(ReduceSources, RoundsA16BitSumOnceAndToNearestEven) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    const auto sum = [type](std::initializer_list<double> terms) {
      std::vector<std::uint16_t> values;
      for (const double term : terms) values.push_back(testing::HalfBits(type, term));
      return testing::HalfValue(type, ReducedHalves(type, values, ReduceOp::kSum));
    };
    // Half a step above one lies between 1 and the odd 1 + step: the tie goes to 1. Adding another
    // half step after a rounding in between would stay at 1; rounded once it is the next value.
    const double half_step = std::ldexp(1.0, -testing::FormatOf(type).digits);
    EXPECT_EQ(sum({1, half_step}), 1);
    EXPECT_EQ(sum({1, half_step, half_step}), 1 + 2 * half_step);
    // From there the tie goes up, to the even one.
    EXPECT_EQ(sum({1 + 2 * half_step, half_step}), 1 + 4 * half_step);
    // Sums of the smallest number are exact, that of the largest overflows.
    const double least = std::ldexp(1.0, testing::FormatOf(type).least_exponent);
    EXPECT_EQ(sum({least, least, least}), 3 * least);
    const double largest = std::ldexp(2 - 2 * half_step, testing::FormatOf(type).exponent_end - 1);
    EXPECT_EQ(sum({largest}), largest);
    EXPECT_EQ(sum({largest, largest}), kInf);
    // Not in between, where fp32 holds what f16 does not.
    if (type == DType::kF16) {
      EXPECT_EQ(sum({largest, largest, -largest}), largest);
    }
  }
}

TEST(ReduceSources, MayWriteOverASource) {
  std::vector<float> a(3000, 1);
  std::vector<float> b(3000, 2);
  const std::vector<const void*> sources = {a.data(), b.data()};
  ReduceSources(sources, b.data(), 3000, DType::kF32, ReduceOp::kSum);
  EXPECT_EQ(a, std::vector<float>(3000, 1));
  EXPECT_EQ(b, std::vector<float>(3000, 3));
}

}  // namespace
}  // namespace weft::collectives
