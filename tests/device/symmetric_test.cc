#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <string>

#include "device/host/host_math.h"
#include "device/host/kernels.h"
#include "tests/device/operand.h"
#include "weft/device.h"

namespace weft {
namespace {

using testing::Operand;

// A A^T with a symmetric C: exactly symmetric, and within two roundings of the plain path.
::testing::AssertionResult SymmetricIsRight(DType dtype, std::int64_t m, std::int64_t k,
                                            std::int64_t batch, std::int64_t pad, float beta,
                                            const device::MatMulOptions& options) {
  const auto device = *CreateHostDevice();
  device::HostMath math(options);
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
  absl::Status status = math.MatMul(*stream, product);
  product.symmetric = true;
  product.d = symmetric.matrix();
  status.Update(math.MatMul(*stream, product));
  status.Update(stream->Synchronize(absl::InfiniteDuration()));
  if (!status.ok()) return ::testing::AssertionFailure() << status.ToString();
  const double unit = dtype == DType::kF32 ? 0x1p-23 * static_cast<double>(k + 4) : 0x1p-7;
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
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const float beta : {0.0f, -4.775f}) {
        EXPECT_TRUE(SymmetricIsRight(dtype, m, k, 1, 0, beta, {})) << m << " x " << k;
        EXPECT_TRUE(SymmetricIsRight(dtype, m, k, 2, 3, beta, {.native_bf16 = false}))
            << m << " x " << k << " widened";
      }
    }
  }
}

RC_GTEST_PROP(SymmetricProductLaw, TrianglesOfAnySizeEqualThePlainPath, ()) {
  device::MatMulOptions options;
  options.min_triangle_rows = 1;
  options.threads = *rc::gen::inRange(1, 3);
  const auto result =
      SymmetricIsRight(*rc::gen::element(DType::kF32, DType::kBF16), *rc::gen::inRange(1, 300),
                       *rc::gen::inRange(1, 40), *rc::gen::inRange(1, 3), *rc::gen::inRange(0, 3),
                       *rc::gen::element(0.0f, 1.0f, 2.5f), options);
  if (!result) RC_FAIL(std::string(result.message()));
}

template <typename T>
void CheckMirror(std::int64_t n, std::int64_t begin, std::int64_t end) {
  std::vector<T> d(static_cast<std::size_t>(n * n));
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = static_cast<T>(i % 60000);
  const std::vector<T> before = d;
  device::MirrorLowerRows(d.data(), begin, end, n);
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
}  // namespace weft
