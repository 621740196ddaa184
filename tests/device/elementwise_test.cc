#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/device/operand.h"
#include "tests/support/device.h"
#include "weft/device.h"
#include "weft/math.h"

namespace weft {
namespace {

using testing::Operand;

class ElementwiseTest : public ::testing::Test {
 protected:
  absl::Status Finish(absl::Status status) {
    status.Update(stream_->Synchronize(absl::InfiniteDuration()));
    return status;
  }

  std::unique_ptr<Device> device_ = testing::NewDevice();
  Math& math_ = device_->math();
  std::unique_ptr<Stream> stream_ = device_->CreateStream("math");
};

TEST_F(ElementwiseTest, ConvertTransposesAndRounds) {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      for (const bool transpose : {false, true}) {
        Operand x(from, 37, 50, 2, 3, 1);
        Operand y(to, transpose ? 50 : 37, transpose ? 37 : 50, 2, 2, 5);
        std::mt19937_64 random(1);
        x.FillNormal(random);
        ASSERT_TRUE(Finish(math_.Convert(*stream_, x.matrix(), transpose, y.matrix())).ok());
        for (int b = 0; b < 2; ++b) {
          for (int i = 0; i < 37; ++i) {
            for (int j = 0; j < 50; ++j) {
              const double value = x.at(b, i, j);
              EXPECT_EQ(transpose ? y.at(b, j, i) : y.at(b, i, j), testing::RoundTo(to, value));
            }
          }
        }
        EXPECT_TRUE(y.PaddingIntact());
      }
    }
  }
}

TEST_F(ElementwiseTest, NormalizeDividesEachMatrixByItsNorm) {
  for (const double scale : {1e-30, 1e-20, 1.0, 1e20, 1e37}) {
    for (const bool transpose : {false, true}) {
      Operand u(DType::kF32, 9, 21, 2, 1);
      Operand x(DType::kF32, transpose ? 21 : 9, transpose ? 9 : 21, 2);
      std::mt19937_64 random(2);
      u.FillNormal(random);
      for (int i = 0; i < 9; ++i) {
        for (int j = 0; j < 21; ++j) u.set(1, i, j, u.at(1, i, j) * scale);
      }
      ASSERT_TRUE(
          Finish(math_.Normalize(*stream_, u.matrix(), transpose, 0, false, x.matrix())).ok());
      for (int b = 0; b < 2; ++b) {
        double sum = 0;
        for (int i = 0; i < 9; ++i) {
          for (int j = 0; j < 21; ++j) sum += std::pow(u.at(b, i, j), 2);
        }
        for (int i = 0; i < 9; ++i) {
          for (int j = 0; j < 21; ++j) {
            const double expected = u.at(b, i, j) / std::sqrt(sum);
            EXPECT_NEAR(transpose ? x.at(b, j, i) : x.at(b, i, j), expected,
                        0x1p-23 * std::abs(expected));
          }
        }
      }
    }
  }
}

TEST_F(ElementwiseTest, NormalizeAtTheFloor) {
  Operand u(DType::kF32, 1, 2);
  Operand x(DType::kF32, 1, 2);
  const auto normalized = [&](double first, double second, float floor, bool clamp) {
    u.set(0, 0, 0, first);
    u.set(0, 0, 1, second);
    EXPECT_TRUE(
        Finish(math_.Normalize(*stream_, u.matrix(), false, floor, clamp, x.matrix())).ok());
    return std::make_pair(x.at(0, 0, 0), x.at(0, 0, 1));
  };
  EXPECT_EQ(normalized(3, 4, 6, false), std::make_pair(0.0, 0.0));
  EXPECT_EQ(normalized(3, 4, 8, true), std::make_pair(0.375, 0.5));
  EXPECT_EQ(normalized(3, 4, 5, false), std::make_pair(3 / 5.0f + 0.0, 4 / 5.0f + 0.0));
  EXPECT_EQ(normalized(0, 0, 0, false), std::make_pair(0.0, 0.0));
  EXPECT_EQ(normalized(0, 0, 0, true), std::make_pair(0.0, 0.0));
  EXPECT_TRUE(
      std::isnan(normalized(std::numeric_limits<double>::quiet_NaN(), 1, 1e-30f, false).first));
  EXPECT_TRUE(
      std::isnan(normalized(std::numeric_limits<double>::infinity(), 1, 1e-30f, false).first));
  EXPECT_EQ(math_.Normalize(*stream_, u.matrix(), false, -1, false, x.matrix()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(math_.Normalize(*stream_, u.matrix(), true, 0, false, x.matrix()).code(),
            absl::StatusCode::kInvalidArgument);
}

// The momentum of a 16-bit gradient of ones equals the plain interpolation to the bit.
TEST_F(ElementwiseTest, MomentumOfOnesIsThePlainInterpolation) {
  constexpr int kCount = 8 * 5;
  for (const auto& [type, nesterov] : {std::pair{DType::kBF16, false},
                                       {DType::kBF16, true},
                                       {DType::kF16, false},
                                       {DType::kF16, true}}) {
    const std::vector<std::uint16_t> ones(kCount, testing::HalfBits(type, 1));
    std::vector<float> momentum(kCount, 0.0f);
    std::vector<float> update(kCount, -1.0f);
    const float mu = 0.9f;
    float expected = 0;
    for (int step = 0; step < 4; ++step) {
      ASSERT_TRUE(Finish(math_.Momentum(*stream_, kCount, ones.data(), type, 1, mu, nesterov,
                                        momentum.data(), update.data(), nullptr))
                      .ok());
      const float kept = mu * expected;
      const float fresh = 1 - mu;
      expected = kept + fresh;
      const float again = mu * expected;
      for (int i = 0; i < kCount; ++i) {
        EXPECT_EQ(momentum[i], expected);
        EXPECT_EQ(update[i], nesterov ? again + fresh : expected);
      }
    }
  }
}

RC_GTEST_FIXTURE_PROP(ElementwiseTest, MomentumAgreesWithFloat64, ()) {
  const std::int64_t count = *rc::gen::inRange(0, 70);
  const DType type = *rc::gen::elementOf(kDTypes);
  const bool nesterov = *rc::gen::arbitrary<bool>();
  const float mu = *rc::gen::element(0.0f, 0.5f, 0.95f);
  const float scale = *rc::gen::element(1.0f, 0.25f, 0.1f);
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  Operand gradient(type, 1, count);
  Operand momentum(DType::kF32, 1, count);
  Operand update(DType::kF32, 1, count);
  gradient.FillNormal(random);
  momentum.FillNormal(random);
  const Operand before = momentum;
  RC_ASSERT(Finish(math_.Momentum(*stream_, count, gradient.matrix().data, type, scale, mu,
                                  nesterov, static_cast<float*>(momentum.matrix().data),
                                  static_cast<float*>(update.matrix().data), nullptr))
                .ok());
  for (std::int64_t i = 0; i < count; ++i) {
    const double fresh = (1.0 - mu) * scale * gradient.at(0, 0, i);
    const double moved = mu * before.at(0, 0, i) + fresh;
    const double magnitude = std::abs(mu * before.at(0, 0, i)) + std::abs(fresh);
    RC_ASSERT(std::abs(momentum.at(0, 0, i) - moved) <= 4 * 0x1p-24 * magnitude);
    RC_ASSERT(std::abs(update.at(0, 0, i) - (nesterov ? mu * moved + fresh : moved)) <=
              8 * 0x1p-24 * magnitude);
  }
}

RC_GTEST_FIXTURE_PROP(ElementwiseTest, ApplyAgreesWithFloat64, ()) {
  const std::int64_t count = *rc::gen::inRange(0, 70);
  const DType type = *rc::gen::elementOf(kDTypes);
  const float decay = *rc::gen::element(0.0f, 0.002f);
  const float step = *rc::gen::element(0.02f, 1.0f);
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  Operand direction(DType::kF32, 1, count);
  Operand weight(type, 1, count);
  direction.FillNormal(random);
  weight.FillNormal(random);
  const Operand before = weight;
  RC_ASSERT(
      Finish(math_.Apply(*stream_, count, decay, step, static_cast<float*>(direction.matrix().data),
                         weight.matrix().data, type, nullptr))
          .ok());
  for (std::int64_t i = 0; i < count; ++i) {
    const double kept = before.at(0, 0, i) * (1.0 - decay);
    const double moved = kept - step * direction.at(0, 0, i);
    const double magnitude = std::abs(kept) + std::abs(step * direction.at(0, 0, i));
    const double rounding = type == DType::kF32 ? 0 : testing::RoundingError(type, std::abs(moved));
    RC_ASSERT(std::abs(weight.at(0, 0, i) - moved) <= 4 * 0x1p-24 * magnitude + rounding);
  }
}

// Where the elements lie changes no bit.
RC_GTEST_FIXTURE_PROP(ElementwiseTest, ApplyMatrixHasTheBitsOfApply, ()) {
  const std::int64_t rows = *rc::gen::inRange(0, 40), cols = *rc::gen::inRange(1, 40);
  const std::int64_t batch = *rc::gen::inRange(1, 3);
  const DType type = *rc::gen::elementOf(kDTypes);
  const float decay = *rc::gen::element(0.0f, 0.002f);
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  Operand direction(DType::kF32, rows, cols, batch, *rc::gen::inRange(0, 3), 2);
  Operand weight(type, rows, cols, batch, *rc::gen::inRange(0, 3), 1);
  direction.FillNormal(random);
  weight.FillNormal(random);
  const std::int64_t count = batch * rows * cols;
  Operand d(DType::kF32, 1, count), w(type, 1, count);
  const auto each = [&](auto fn) {
    for (std::int64_t b = 0, k = 0; b < batch; ++b) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < cols; ++j) fn(b, i, j, k++);
      }
    }
  };
  each([&](auto b, auto i, auto j, auto k) {
    d.set(0, 0, k, direction.at(b, i, j));
    w.set(0, 0, k, weight.at(b, i, j));
  });
  const auto skips = std::make_unique<StepControl>(StepControl{.skip = 1});
  for (const StepControl* control :
       {static_cast<const StepControl*>(nullptr), static_cast<const StepControl*>(skips.get())}) {
    absl::Status status =
        math_.ApplyMatrix(*stream_, decay, 0.3f, direction.matrix(), weight.matrix(), control);
    status.Update(math_.Apply(*stream_, count, decay, 0.3f, static_cast<float*>(d.matrix().data),
                              w.matrix().data, type, control));
    RC_ASSERT(Finish(status).ok());
    each([&](auto b, auto i, auto j, auto k) { RC_ASSERT(weight.at(b, i, j) == w.at(0, 0, k)); });
    RC_ASSERT(weight.PaddingIntact());
  }
}

RC_GTEST_FIXTURE_PROP(ElementwiseTest, AdamWAgreesWithFloat64, ()) {
  const std::int64_t count = *rc::gen::inRange(1, 50);
  const DType gradient_type = *rc::gen::elementOf(kDTypes);
  Math::AdamWArguments arguments{.count = count,
                                 .gradient_type = gradient_type,
                                 .gradient_scale = *rc::gen::element(1.0f, 0.5f),
                                 .weight_type = DType::kF32,
                                 .lr = 1e-2,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1};
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  Operand gradient(gradient_type, 1, count);
  Operand weight(DType::kF32, 1, count);
  weight.FillNormal(random);
  std::vector<float> m(count + 1, 0.0f);
  std::vector<float> v(count + 1, 0.0f);
  std::vector<double> rm(count, 0.0);
  std::vector<double> rv(count, 0.0);
  std::vector<double> rw(count);
  for (std::int64_t i = 0; i < count; ++i) rw[i] = weight.at(0, 0, i);
  arguments.gradient = gradient.matrix().data;
  arguments.m = m.data();
  arguments.v = v.data();
  arguments.weight = weight.matrix().data;
  const auto applied = std::make_unique<std::int64_t>(0);
  arguments.applied_steps = applied.get();
  for (int t = 1; t <= 5; ++t) {
    gradient.FillNormal(random);
    RC_ASSERT(Finish(math_.AdamW(*stream_, arguments)).ok());
    RC_ASSERT(*applied == t);
    for (std::int64_t i = 0; i < count; ++i) {
      const double g = arguments.gradient_scale * gradient.at(0, 0, i);
      rw[i] *= 1 - 1e-2 * 0.1;
      rm[i] = 0.9 * rm[i] + 0.1 * g;
      rv[i] = 0.999 * rv[i] + 0.001 * g * g;
      rw[i] -= 1e-2 * (rm[i] / (1 - std::pow(0.9, t))) /
               (std::sqrt(rv[i] / (1 - std::pow(0.999, t))) + 1e-8);
      RC_ASSERT(std::abs(weight.at(0, 0, i) - rw[i]) <= 2e-6 * (1 + std::abs(rw[i])));
    }
  }
}

TEST_F(ElementwiseTest, AdamWRoundsA16BitWeightOnce) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    Operand weight(type, 1, 1);
    weight.set(0, 0, 0, 1);
    std::vector<float> state = {1, 0, 0};  // gradient and both moments
    const auto applied = std::make_unique<std::int64_t>(0);
    // One step moves the weight by lr: from 1 to 0.75, which both types hold.
    ASSERT_TRUE(Finish(math_.AdamW(*stream_, {.count = 1,
                                              .gradient = &state[0],
                                              .m = &state[1],
                                              .v = &state[2],
                                              .weight = weight.matrix().data,
                                              .weight_type = type,
                                              .lr = 0.25,
                                              .beta1 = 0.9,
                                              .beta2 = 0.999,
                                              .eps = 0,
                                              .applied_steps = applied.get()}))
                    .ok());
    EXPECT_EQ(weight.at(0, 0, 0), 0.75);
    EXPECT_EQ(*applied, 1);
  }
}

TEST_F(ElementwiseTest, SkipIsReadWhenTheItemRunsAndThenNothingIsWritten) {
  const auto gradient = std::make_unique<float>(1);
  for (const float skipping : {0.0f, 1.0f}) {
    // Momentum 1, first moment 2, second moment 3, weight 4, update 5.
    std::vector<float> state = {1, 2, 3, 4, 5};
    const std::vector<float> before = state;
    const auto applied = std::make_unique<std::int64_t>(6);
    const auto control = std::make_unique<StepControl>(StepControl{.skip = 1 - skipping});
    stream_->Enqueue([&] {
      control->skip = skipping;
      return absl::OkStatus();
    });
    absl::Status status = math_.Momentum(*stream_, 1, gradient.get(), DType::kF32, 1, 0.5f, true,
                                         &state[0], &state[4], control.get());
    status.Update(
        math_.Apply(*stream_, 1, 0.5f, 1, gradient.get(), &state[3], DType::kF32, control.get()));
    status.Update(math_.AdamW(*stream_, {.count = 1,
                                         .gradient = gradient.get(),
                                         .m = &state[1],
                                         .v = &state[2],
                                         .weight = &state[3],
                                         .lr = 0.5,
                                         .beta1 = 0.5,
                                         .beta2 = 0.5,
                                         .eps = 1,
                                         .applied_steps = applied.get(),
                                         .control = control.get()}));
    ASSERT_TRUE(Finish(status).ok());
    EXPECT_EQ(*applied, skipping != 0 ? 6 : 7);
    if (skipping != 0) {
      EXPECT_EQ(state, before);
    } else {
      // Momentum of ones and a gradient of one stay ones.
      EXPECT_EQ(state[0], 1);
      EXPECT_EQ(state[1], 1.5f);
      EXPECT_EQ(state[2], 2);
      EXPECT_LT(state[3], 1);
      EXPECT_EQ(state[4], 1);
    }
  }
}

TEST_F(ElementwiseTest, AdamWNeedsItsCounter) {
  float x[4] = {};
  EXPECT_EQ(
      math_
          .AdamW(*stream_, {.count = 1, .gradient = &x[0], .m = &x[1], .v = &x[2], .weight = &x[3]})
          .message(),
      "AdamW has no counter of applied steps");
}

TEST_F(ElementwiseTest, ShiftDiagonalRoundsOnce) {
  for (const DType type : kDTypes) {
    Operand x(type, 9, 9, 2, 1, 2);
    Operand y(type, 9, 9, 2, 3, 1);
    std::mt19937_64 random(7);
    x.FillNormal(random);
    const float shift = 3.4445f;
    ASSERT_TRUE(Finish(math_.ShiftDiagonal(*stream_, x.matrix(), shift, y.matrix())).ok());
    for (int b = 0; b < 2; ++b) {
      for (int i = 0; i < 9; ++i) {
        for (int j = 0; j < 9; ++j) {
          const auto sum = static_cast<float>(x.at(b, i, j)) + (i == j ? shift : 0);
          EXPECT_EQ(y.at(b, i, j), testing::RoundTo(type, sum));
        }
      }
    }
    EXPECT_TRUE(y.PaddingIntact());
  }
  Operand x(DType::kF32, 2, 3);
  Operand y(DType::kF32, 2, 3);
  EXPECT_EQ(math_.ShiftDiagonal(*stream_, x.matrix(), 1, y.matrix()).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ElementwiseTest, NullOrAliasedArgumentsAreRefused) {
  std::vector<float> a(4), b(4);
  EXPECT_EQ(
      math_.Momentum(*stream_, 4, a.data(), DType::kF32, 1, 0.9f, true, b.data(), b.data(), nullptr)
          .message(),
      "the update overlaps the momentum or the gradient");
  EXPECT_EQ(
      math_.Momentum(*stream_, 4, nullptr, DType::kF32, 1, 0.9f, true, a.data(), b.data(), nullptr)
          .message(),
      "the gradient has no data");
  EXPECT_EQ(math_.Apply(*stream_, -1, 0, 1, a.data(), b.data(), DType::kF32, nullptr).message(),
            "the element count -1 is negative");
  EXPECT_TRUE(math_.Apply(*stream_, 0, 0, 1, nullptr, nullptr, DType::kF32, nullptr).ok());
  const Matrix d = Matrix::Dense(a.data(), DType::kF32, 2, 2);
  EXPECT_EQ(math_.ApplyMatrix(*stream_, 0, 1, d, d, nullptr).message(),
            "the weight overlaps the direction");
  EXPECT_EQ(math_
                .ApplyMatrix(*stream_, 0, 1, Matrix::Dense(a.data(), DType::kBF16, 2, 2),
                             Matrix::Dense(b.data(), DType::kF32, 2, 2), nullptr)
                .message(),
            "only an fp32 direction can be applied");
  EXPECT_EQ(
      math_.ApplyMatrix(*stream_, 0, 1, d, Matrix::Dense(b.data(), DType::kF32, 1, 4), nullptr)
          .code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft
