#include "update/recipe.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/forwarding.h"
#include "tests/update/runs.h"

namespace weft {
namespace {

using Segments = std::vector<int>;

NewtonSchulzCost Cost(const Segments& segments, std::int64_t rows, std::int64_t cols) {
  return *CostOf(testing::Options(Coefficients::Quintic(), DType::kBF16, segments), rows, cols);
}

TEST(Recipe, CountsOfTheReferenceShape) {
  const NewtonSchulzCost plain = Cost({0}, 2560, 9728);
  EXPECT_EQ(plain.long_products, 10);
  EXPECT_EQ(plain.small_products, 5);
  EXPECT_EQ(plain.dense_flops, 1442840576000.0);
  const NewtonSchulzCost three = Cost({2, 2, 1}, 2560, 9728);
  EXPECT_EQ(three.long_products, 6);
  EXPECT_EQ(three.small_products, 11);
  EXPECT_EQ(three.dense_flops, 1134139801600.0);
  const NewtonSchulzCost two = Cost({2, 3}, 2560, 9728);
  EXPECT_EQ(two.long_products, 4);
  EXPECT_EQ(two.small_products, 14);
  EXPECT_EQ(two.dense_flops, 979789414400.0);
  // Every product but the last of a segment has a symmetric result.
  EXPECT_EQ(three.symmetric_flops, 3 * 127506841600.0 * 1.5 + 11 * 33554432000.0 / 2);
}

TEST(Recipe, TallAndWideCostTheSame) {
  EXPECT_EQ(Cost({2, 2, 1}, 300, 70).dense_flops, Cost({2, 2, 1}, 70, 300).dense_flops);
}

TEST(Recipe, WrongSegmentsAreRefused) {
  const auto cost = CostOf(testing::Options(Coefficients::Quintic(), DType::kF32, {2, 2}), 10, 20);
  EXPECT_EQ(cost.status().message(), "segments [2,2] add up to 4, not to the 5 iterations");
}

// Segments of lengths L: 2 long products each, 4 L - 3 small ones.
RC_GTEST_PROP(RecipeLaw, CountsFollowTheGeneralRule, ()) {
  const auto segments = *rc::gen::nonEmpty(rc::gen::container<Segments>(rc::gen::inRange(1, 6)));
  NewtonSchulzOptions options;
  options.segments = segments;
  options.iterations = 0;
  int small = 0;
  for (const int length : segments) {
    options.iterations += length;
    small += 4 * length - 3;
  }
  const NewtonSchulzCost cost = *CostOf(options, 7, 5);
  RC_ASSERT(cost.long_products == 2 * static_cast<int>(segments.size()));
  RC_ASSERT(cost.small_products == small);
  RC_ASSERT(cost.dense_flops == 2.0 * 25 * (7 * cost.long_products + 5 * cost.small_products));
}

// Counts the products.
class CountingMath final : public testing::ForwardingMath {
 public:
  using ForwardingMath::ForwardingMath;

  absl::Status MatMul(Stream& stream, const Product& product) override {
    const std::int64_t terms = product.a.cols;
    flops += 2.0 * static_cast<double>(product.d.rows * product.d.cols * terms);
    ++(product.d.cols == product.d.rows && terms == product.d.rows ? small : wide);
    symmetric += product.symmetric ? 1 : 0;
    return inner_.MatMul(stream, product);
  }
  using ForwardingMath::Prepare;
  absl::Status Prepare(const Product& product) override {
    ++prepared;
    return inner_.Prepare(product);
  }

  int wide = 0;
  int small = 0;
  int symmetric = 0;
  int prepared = 0;
  double flops = 0;
};

class CountingDevice final : public testing::ForwardingDevice {
 public:
  explicit CountingDevice(Device& inner) : ForwardingDevice(inner), counts(inner.math()) {}
  Math& math() override { return counts; }

  CountingMath counts;
};

TEST(Recipe, WhatIsExecutedIsWhatIsCounted) {
  const auto host = *CreateHostDevice();
  for (const Segments& segments : {Segments{0}, {2, 2, 1}, {2, 3}, {5}, {1, 2, 2}, {}}) {
    for (const auto& [rows, cols] : {std::pair<int, int>{24, 60}, {60, 24}, {20, 20}}) {
      CountingDevice device(*host);
      const NewtonSchulzOptions options =
          testing::Options(Coefficients::Quintic(), DType::kF32, segments);
      testing::Orthogonalize(device, options, testing::Gaussian(rows * cols, 1), rows, cols);
      const NewtonSchulzCost cost = *CostOf(options, rows, cols);
      const CountingMath& counts = device.counts;
      EXPECT_EQ(counts.flops, cost.dense_flops) << testing::Describe(options);
      EXPECT_EQ(counts.wide + counts.small, cost.long_products + cost.small_products);
      if (rows != cols) {
        EXPECT_EQ(counts.wide, cost.long_products) << testing::Describe(options);
      }
      // All but one product per segment; half of the long ones are not symmetric.
      EXPECT_EQ(counts.symmetric, counts.wide + counts.small - cost.long_products / 2);
      EXPECT_EQ(counts.prepared, counts.wide + counts.small);
    }
  }
}

}  // namespace
}  // namespace weft
