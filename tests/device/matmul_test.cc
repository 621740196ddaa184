#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/device/operand.h"
#include "tests/support/device.h"
#include "weft/device.h"
#include "weft/math.h"

namespace weft {
namespace {

using testing::NewDevice;
using testing::Operand;
using testing::ProductMode;
using testing::ProductModes;

constexpr absl::Duration kForever = absl::InfiniteDuration();

struct Form {
  std::int64_t m = 1, n = 1, k = 1, batch = 1, pad = 0, gap = 0;
  bool transpose_b = false;
  bool c_like_d = true;
  float alpha = 1, beta = 0;
  DType dtype = DType::kF32;
};

Product ProductOf(Operand& a, Operand& b, Operand& d) {
  Product product;
  product.a = a.matrix();
  product.b = b.matrix();
  product.d = d.matrix();
  return product;
}

// D = A A^T
Product GramOf(Operand& a, Operand& d) {
  Product product = ProductOf(a, a, d);
  product.transpose_b = true;
  return product;
}

// What one fp32-accumulated, once-rounded product may be off by, given the sum of magnitudes of its
// terms. The accumulation's error grows at most with the number of terms.
double Tolerance(DType dtype, std::int64_t k, double magnitude) {
  return 0x1p-24 * static_cast<double>(k + 4) * magnitude +
         testing::RoundingError(dtype, magnitude);
}

::testing::AssertionResult ProductIsRight(const Form& form, const ProductMode& mode,
                                          std::uint64_t seed) {
  const auto device = NewDevice();
  const auto math = mode.math();
  std::mt19937_64 random(seed);
  Operand a(form.dtype, form.m, form.k, form.batch, form.pad, form.gap);
  Operand b(form.dtype, form.transpose_b ? form.n : form.k, form.transpose_b ? form.k : form.n,
            form.batch, form.pad + 1, form.gap);
  Operand c(form.dtype, form.m, form.n, form.batch, form.pad + (form.c_like_d ? 0 : 3), form.gap);
  Operand d(form.dtype, form.m, form.n, form.batch, form.pad, form.gap);
  a.FillNormal(random);
  b.FillNormal(random);
  c.FillNormal(random);
  Product product{.a = a.matrix(),
                  .b = b.matrix(),
                  .transpose_b = form.transpose_b,
                  .alpha = form.alpha,
                  .beta = form.beta,
                  .c = c.matrix(),
                  .d = d.matrix()};
  const auto stream = device->CreateStream("product");
  if (absl::Status status = math->MatMul(*stream, product); !status.ok()) {
    return ::testing::AssertionFailure() << status.ToString();
  }
  if (absl::Status status = stream->Synchronize(kForever); !status.ok()) {
    return ::testing::AssertionFailure() << status.ToString();
  }
  for (std::int64_t batch = 0; batch < form.batch; ++batch) {
    for (std::int64_t i = 0; i < form.m; ++i) {
      for (std::int64_t j = 0; j < form.n; ++j) {
        const testing::Element expected =
            ProductElement(a, b, form.transpose_b, form.alpha, form.beta, &c, batch, i, j);
        const double got = d.at(batch, i, j);
        if (!(std::abs(got - expected.value) <=
              Tolerance(form.dtype, form.k, expected.magnitude))) {
          return ::testing::AssertionFailure()
                 << mode.name << " [" << batch << "][" << i << "][" << j << "]: " << got
                 << " instead of " << expected.value << " (magnitude " << expected.magnitude << ")";
        }
      }
    }
  }
  if (!d.PaddingIntact()) return ::testing::AssertionFailure() << mode.name << " wrote outside D";
  return ::testing::AssertionSuccess();
}

TEST(MatMul, AgreesWithFloat64ForTheListedShapes) {
  const std::int64_t shapes[][3] = {{1, 1, 1},      {1, 9, 4},      {9, 1, 4},      {5, 6, 1},
                                    {7, 7, 3},      {3, 7, 7},      {126, 62, 126}, {62, 126, 62},
                                    {130, 130, 66}, {130, 66, 130}, {33, 257, 95}};
  for (const auto& [m, n, k] : shapes) {
    for (const DType dtype : kDTypes) {
      for (const bool transpose_b : {false, true}) {
        for (const float beta : {0.0f, -4.775f}) {
          for (const ProductMode& mode : ProductModes()) {
            const Form form{.m = m,
                            .n = n,
                            .k = k,
                            .transpose_b = transpose_b,
                            .alpha = 2.0315f,
                            .beta = beta,
                            .dtype = dtype};
            EXPECT_TRUE(ProductIsRight(form, mode, 1)) << m << " x " << n << " x " << k;
          }
        }
      }
    }
  }
}

RC_GTEST_PROP(MatMulLaw, AgreesWithFloat64, ()) {
  Form form;
  form.m = *rc::gen::inRange(1, 40);
  form.n = *rc::gen::inRange(1, 40);
  form.k = *rc::gen::inRange(1, 70);
  form.batch = *rc::gen::inRange(1, 4);
  form.pad = *rc::gen::inRange(0, 5);
  form.gap = *rc::gen::inRange(0, 9);
  form.transpose_b = *rc::gen::arbitrary<bool>();
  form.c_like_d = *rc::gen::arbitrary<bool>();
  form.alpha = *rc::gen::element(1.0f, 0.0f, -0.5f, 2.0315f);
  form.beta = *rc::gen::element(0.0f, 1.0f, 3.4445f, -1e-3f);
  form.dtype = *rc::gen::elementOf(kDTypes);
  const auto modes = ProductModes();
  const ProductMode& mode = modes[*rc::gen::inRange<std::size_t>(0, modes.size())];
  const auto result = ProductIsRight(form, mode, *rc::gen::arbitrary<std::uint64_t>());
  if (!result) RC_FAIL(std::string(result.message()));
}

TEST(MatMul, EqualArgumentsGiveEqualBits) {
  const auto device = NewDevice(nullptr, 2);
  std::mt19937_64 random(3);
  Operand a(DType::kF32, 150, 333);
  Operand first(DType::kF32, 150, 150);
  Operand second(DType::kF32, 150, 150);
  a.FillNormal(random);
  const auto stream = device->CreateStream("bits");
  for (Operand* d : {&first, &second}) {
    ASSERT_TRUE(device->math().MatMul(*stream, GramOf(a, *d)).ok());
  }
  ASSERT_TRUE(stream->Synchronize(kForever).ok());
  EXPECT_EQ(first.bytes(), second.bytes());
}

TEST(MatMul, StreamsShareOneMath) {
  const auto device = NewDevice();
  constexpr int kStreams = 4;
  std::mt19937_64 random(4);
  Operand a(DType::kBF16, 64, 200);
  a.FillNormal(random);
  std::vector<Operand> results(kStreams, Operand(DType::kBF16, 64, 64));
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(device->CreateStream("s" + std::to_string(i)));
    for (int repeat = 0; repeat < 20; ++repeat) {
      ASSERT_TRUE(device->math().MatMul(*streams.back(), GramOf(a, results[i])).ok());
    }
  }
  for (const auto& stream : streams) ASSERT_TRUE(stream->Synchronize(kForever).ok());
  for (const Operand& result : results) EXPECT_EQ(result.bytes(), results[0].bytes());
}

TEST(MatMul, EmptyMatricesAreNoOpsAndNoTermsLeaveBetaC) {
  const auto device = NewDevice();
  const auto stream = device->CreateStream("empty");
  Operand none(DType::kF32, 0, 5);
  Operand tall(DType::kF32, 0, 3);
  Operand wide(DType::kF32, 3, 5);
  EXPECT_TRUE(device->math().MatMul(*stream, ProductOf(tall, wide, none)).ok());
  Operand a(DType::kF32, 2, 0);
  Operand b(DType::kF32, 0, 2);
  Operand c(DType::kF32, 2, 2);
  Operand d(DType::kF32, 2, 2);
  std::mt19937_64 random(5);
  c.FillNormal(random);
  EXPECT_TRUE(
      device->math()
          .MatMul(*stream,
                  {.a = a.matrix(), .b = b.matrix(), .beta = 2, .c = c.matrix(), .d = d.matrix()})
          .ok());
  ASSERT_TRUE(stream->Synchronize(kForever).ok());
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) EXPECT_EQ(d.at(0, i, j), 2 * c.at(0, i, j));
  }
}

TEST(MatMul, BadArgumentsAreRefusedInOneSentence) {
  const auto device = NewDevice();
  const auto stream = device->CreateStream("bad");
  Operand a(DType::kF32, 3, 4);
  Operand b(DType::kF32, 4, 5);
  Operand d(DType::kF32, 3, 5);
  Operand half(DType::kBF16, 3, 5);
  const Product good = ProductOf(a, b, d);
  const auto refusal = [&](Product product) {
    const absl::Status status = device->math().MatMul(*stream, product);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  ASSERT_TRUE(device->math().MatMul(*stream, good).ok());
  Product bad = good;
  bad.transpose_b = true;
  EXPECT_EQ(refusal(bad), "a product of A 3 x 4 and transposed B 4 x 5 does not give D 3 x 5");
  bad = good;
  bad.d = half.matrix();
  EXPECT_EQ(refusal(bad), "A, B and D of a product must share one dtype");
  bad = good;
  bad.beta = 1;
  bad.c = a.matrix();
  EXPECT_EQ(refusal(bad), "C 3 x 4 of a product must have the shape and dtype of D 3 x 5");
  bad.c = d.matrix();
  EXPECT_EQ(refusal(bad), "D of a product overlaps C");
  bad = good;
  bad.symmetric = true;
  EXPECT_EQ(refusal(bad), "a symmetric product needs a square D, not 3 x 5");
  bad = good;
  bad.a.row_stride = 3;
  EXPECT_THAT(refusal(bad), ::testing::HasSubstr("row stride 3"));
  bad = good;
  bad.b.data = nullptr;
  EXPECT_EQ(refusal(bad), "matrix B has no data");
  EXPECT_TRUE(device->math().Prepare(bad).ok());
  EXPECT_TRUE(stream->Synchronize(kForever).ok());
}

}  // namespace
}  // namespace weft
