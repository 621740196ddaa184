#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <string>

#include "tests/device/operand.h"
#include "tests/support/device.h"
#include "weft/device.h"

namespace weft {
namespace {

using testing::Operand;
using testing::ProductMode;

// A A^T with a symmetric C: exactly symmetric, and within two roundings of the plain path.
::testing::AssertionResult SymmetricIsRight(DType dtype, std::int64_t m, std::int64_t k,
                                            std::int64_t batch, std::int64_t pad, float beta,
                                            const ProductMode& mode) {
  const auto device = testing::NewDevice();
  const auto math = mode.math();
  std::mt19937_64 random(static_cast<std::uint64_t>(m * 1000 + k));
  Operand a(dtype, m, k, batch, pad);
  Operand c(dtype, m, m, batch, pad);
  Operand plain(dtype, m, m, batch, pad);
  Operand symmetric(dtype, m, m, batch, pad);
  a.FillNormal(random);
  std::normal_distribution<double> normal;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        const double value = normal(random);
        c.set(b, i, j, value);
        c.set(b, j, i, value);
      }
    }
  }
  Product product{.a = a.matrix(),
                  .b = a.matrix(),
                  .transpose_b = true,
                  .alpha = 0.5f,
                  .beta = beta,
                  .c = c.matrix(),
                  .d = plain.matrix()};
  const auto stream = device->CreateStream("symmetric");
  absl::Status status = math->MatMul(*stream, product);
  product.symmetric = true;
  product.d = symmetric.matrix();
  status.Update(math->MatMul(*stream, product));
  status.Update(stream->Synchronize(absl::InfiniteDuration()));
  if (!status.ok()) return ::testing::AssertionFailure() << status.ToString();
  const double unit = dtype == DType::kF32 ? 0x1p-23 * static_cast<double>(k + 4)
                                           : 2 * testing::RoundingError(dtype, 1);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < m; ++j) {
        if (symmetric.at(b, i, j) != symmetric.at(b, j, i)) {
          return ::testing::AssertionFailure() << "not symmetric at " << i << ", " << j;
        }
        // |row i| |row j| bounds the terms.
        const double scale = 0.5 * static_cast<double>(k) * 2 + std::abs(beta * c.at(b, i, j)) + 1;
        if (std::abs(symmetric.at(b, i, j) - plain.at(b, i, j)) > unit * scale) {
          return ::testing::AssertionFailure() << symmetric.at(b, i, j) << " is not the plain "
                                               << plain.at(b, i, j) << " at " << i << ", " << j;
        }
      }
    }
  }
  if (!symmetric.PaddingIntact()) return ::testing::AssertionFailure() << "wrote outside D";
  return ::testing::AssertionSuccess();
}

TEST(SymmetricProduct, EqualsThePlainPath) {
  const std::int64_t shapes[][2] = {{1, 5},    {3, 7},    {62, 126},  {66, 130}, {255, 40},
                                    {256, 40}, {257, 40}, {300, 513}, {520, 64}, {1100, 32}};
  for (const auto& [m, k] : shapes) {
    for (const DType dtype : kDTypes) {
      for (const float beta : {0.0f, -4.775f}) {
        for (const ProductMode& mode : testing::ProductModes()) {
          EXPECT_TRUE(SymmetricIsRight(dtype, m, k, 1, 0, beta, mode))
              << m << " x " << k << " " << mode.name;
          EXPECT_TRUE(SymmetricIsRight(dtype, m, k, 2, 3, beta, mode))
              << "two " << m << " x " << k << " " << mode.name;
        }
      }
    }
  }
}

RC_GTEST_PROP(SymmetricProductLaw, TrianglesOfAnySizeEqualThePlainPath, ()) {
  const auto modes = testing::TriangleModes();
  const ProductMode& mode = modes[*rc::gen::inRange<std::size_t>(0, modes.size())];
  const auto result = SymmetricIsRight(
      *rc::gen::elementOf(kDTypes), *rc::gen::inRange(1, 300), *rc::gen::inRange(1, 40),
      *rc::gen::inRange(1, 3), *rc::gen::inRange(0, 3), *rc::gen::element(0.0f, 1.0f, 2.5f), mode);
  if (!result) RC_FAIL(std::string(result.message()));
}

}  // namespace
}  // namespace weft
