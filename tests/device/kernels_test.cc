#include "device/host/kernels.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace weft::device {
namespace {

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

template <typename T>
void CheckMirror(std::int64_t n, std::int64_t begin, std::int64_t end) {
  std::vector<T> d(static_cast<std::size_t>(n * n));
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = static_cast<T>(i % 60000);
  const std::vector<T> before = d;
  MirrorLowerRows(d.data(), begin, end, n);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const bool mirrored = j > i && j >= begin && j < end;
      EXPECT_EQ(d[i * n + j], mirrored ? before[j * n + i] : before[i * n + j]);
    }
  }
}

TEST(MirrorLowerRows, WritesTheMirrorImageAndNothingElse) {
  for (const std::int64_t n : {1, 7, 8, 29, 40}) {
    CheckMirror<float>(n, 0, n);
    CheckMirror<std::uint16_t>(n, 0, n);
  }
  CheckMirror<float>(29, 16, 24);
  CheckMirror<std::uint16_t>(29, 16, 24);
}

}  // namespace
}  // namespace weft::device
