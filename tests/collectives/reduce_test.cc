#include "collectives/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

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

std::uint16_t ReducedBF16(const std::vector<std::uint16_t>& values, ReduceOp op) {
  std::vector<const void*> sources;
  for (const std::uint16_t& value : values) sources.push_back(&value);
  std::uint16_t result = 0;
  ReduceSources(sources, &result, 1, DType::kBF16, op);
  return result;
}

TEST(ReduceSources, ANanAnywhereGivesNan) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    for (const std::vector<float>& values :
         {std::vector<float>{kNan, 1, 2}, {1, kNan, 2}, {1, 2, kNan}, {kNan}, {kInf, kNan}}) {
      EXPECT_TRUE(std::isnan(Reduced(values, op)));
    }
  }
  const std::uint16_t value = ReducedBF16({0x3f80, 0x7f81, 0x3f80}, ReduceOp::kMax);
  EXPECT_GT(value & 0x7fff, 0x7f80);
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

TEST(ReduceSources, RoundsABF16SumOnceAndToNearestEven) {
  // 1 + 2^-8 lies between 1 and 1 + 2^-7: the tie goes to the even 1. Adding another 2^-8 after a
  // rounding in between would stay at 1; rounded once it is 1 + 2^-7.
  const std::uint16_t one = 0x3f80;
  const std::uint16_t two_to_minus_8 = 0x3b80;
  EXPECT_EQ(ReducedBF16({one, two_to_minus_8}, ReduceOp::kSum), one);
  EXPECT_EQ(ReducedBF16({one, two_to_minus_8, two_to_minus_8}, ReduceOp::kSum), 0x3f81);
  // From 1 + 2^-7 the tie goes up, to the even 1 + 2^-6.
  EXPECT_EQ(ReducedBF16({0x3f81, two_to_minus_8}, ReduceOp::kSum), 0x3f82);
  // The largest finite value plus itself overflows to infinity.
  EXPECT_EQ(ReducedBF16({0x7f7f, 0x7f7f}, ReduceOp::kSum), 0x7f80);
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
