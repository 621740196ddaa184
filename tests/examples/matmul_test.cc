// The blocked product against a triple loop, over shapes that are no multiple of any block.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "train_gpt/ops.h"

namespace train_gpt {
namespace {

std::vector<double> Normal(std::size_t count, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

template <typename T>
void CheckProduct(int m, int n, int k, bool transpose_a, bool transpose_b, bool accumulate,
                  std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<double> a = Normal(static_cast<std::size_t>(m) * k, random);
  const std::vector<double> b = Normal(static_cast<std::size_t>(k) * n, random);
  const std::vector<double> c = Normal(static_cast<std::size_t>(m) * n, random);
  const std::vector<T> at(a.begin(), a.end()), bt(b.begin(), b.end());
  std::vector<T> ct(c.begin(), c.end());
  const double alpha = 0.75;

  MatMul<T>(m, n, k, static_cast<T>(alpha),
            transpose_a ? Transposed<const T>(at.data(), m) : RowMajor<const T>(at.data(), k),
            transpose_b ? Transposed<const T>(bt.data(), k) : RowMajor<const T>(bt.data(), n),
            accumulate, ct.data(), n);

  const double epsilon = std::numeric_limits<T>::epsilon();
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (int l = 0; l < k; ++l) {
        const double x = static_cast<double>(at[transpose_a ? l * m + i : i * k + l]);
        const double y = static_cast<double>(bt[transpose_b ? j * k + l : l * n + j]);
        sum += x * y;
        magnitude += std::abs(x * y);
      }
      const double before = static_cast<double>(static_cast<T>(c[i * n + j]));
      const double expected = alpha * sum + (accumulate ? before : 0.0);
      // The textbook bound for a sum of k products in any order, and the final scaling and sum.
      const double bound = epsilon * ((k + 3) * magnitude + 2 * std::abs(before));
      RC_ASSERT(std::abs(static_cast<double>(ct[i * n + j]) - expected) <= bound);
    }
  }
}

RC_GTEST_PROP(MatMul, EqualsTheTripleLoop, ()) {
  const int m = *rc::gen::inRange(1, 40);
  const int n = *rc::gen::inRange(1, 80);
  // Beyond one pass over the depth now and then.
  const int k = *rc::gen::oneOf(rc::gen::inRange(1, 50), rc::gen::inRange(380, 400));
  const bool transpose_a = *rc::gen::arbitrary<bool>();
  const bool transpose_b = *rc::gen::arbitrary<bool>();
  const bool accumulate = *rc::gen::arbitrary<bool>();
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  CheckProduct<float>(m, n, k, transpose_a, transpose_b, accumulate, seed);
  CheckProduct<double>(m, n, k, transpose_a, transpose_b, accumulate, seed);
}

TEST(MatMul, WritesOnlyItsOwnColumns) {
  // C is a 3 x 2 block in rows of 4.
  const std::vector<float> a = {1, 2, 3}, b = {10, 20};
  std::vector<float> c(12, -1.0f);
  MatMul<float>(3, 2, 1, 1.0f, RowMajor<const float>(a.data(), 1),
                RowMajor<const float>(b.data(), 2), false, c.data(), 4);
  EXPECT_EQ(c, (std::vector<float>{10, 20, -1, -1, 20, 40, -1, -1, 30, 60, -1, -1}));
}

}  // namespace
}  // namespace train_gpt
