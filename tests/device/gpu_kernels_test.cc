// The kernels of the CUDA leaf, run block by block on the host, against the host's own: the same
// bits, but where sums are added up in another order.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "device/cuda/host_block.h"
#include "device/cuda/kernel_list.h"
#include "tests/device/operand.h"
#include "tests/support/halves.h"
#include "weft/device.h"
#include "weft/math.h"

namespace weft::device {
namespace {

using testing::Operand;

template <typename F>
void RunOnHost(const F& kernel) {
  HostBlock block;
  // Backwards: blocks may run in any order.
  for (std::int64_t i = kernel.Blocks(); i-- > 0;) kernel(block, i);
}

class GpuKernelsTest : public ::testing::Test {
 protected:
  void Finish(absl::Status status) {
    status.Update(stream_->Synchronize(absl::InfiniteDuration()));
    RC_ASSERT(status == absl::OkStatus());
  }

  std::unique_ptr<Device> host_ = *CreateHostDevice();
  Math& math_ = host_->math();
  std::unique_ptr<Stream> stream_ = host_->CreateStream("host");
};

DType AnyType() { return *rc::gen::elementOf(kDTypes); }
std::uint64_t AnySeed() { return *rc::gen::arbitrary<std::uint64_t>(); }

// The bits of one that is not a number are the compiler's to choose, by the order of the operands.
bool SameBits(const Operand& x, const Operand& y) {
  if (x.bytes() == y.bytes()) return true;
  if (!x.PaddingIntact() || !y.PaddingIntact()) return false;
  for (std::int64_t b = 0; b < x.batch(); ++b) {
    for (std::int64_t i = 0; i < x.rows(); ++i) {
      for (std::int64_t j = 0; j < x.cols(); ++j) {
        const double one = x.at(b, i, j), other = y.at(b, i, j);
        if (std::isnan(one) && std::isnan(other)) continue;
        // Zeros have a sign.
        if (one != other || std::signbit(one) != std::signbit(other)) return false;
      }
    }
  }
  return true;
}

// Normal numbers, and now and then one that is not.
void Fill(Operand& x, std::mt19937_64& random) {
  x.FillNormal(random);
  if (x.rows() * x.cols() == 0 || random() % 2 == 0) return;
  const double odd[] = {0, std::numeric_limits<double>::infinity(), 1e-42, 3e38,
                        std::numeric_limits<double>::quiet_NaN()};
  for (int i = 0; i < 5; ++i) {
    x.set(0, static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(x.rows())),
          static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(x.cols())), odd[i]);
  }
}

Operand AnyMatrix(DType type, std::int64_t rows, std::int64_t cols, std::int64_t batch) {
  return {type, rows, cols, batch, *rc::gen::inRange(0, 4), *rc::gen::inRange(0, 4)};
}

struct Shape {
  // Less and more than one tile.
  std::int64_t rows = *rc::gen::inRange(1, 150);
  std::int64_t cols = *rc::gen::inRange(1, 150);
  std::int64_t batch = *rc::gen::inRange(1, 4);
};

template <typename From, typename To>
void Map(Operand& x, Operand& y, bool transpose, const MapFactor& factor) {
  RunOnHost(MapMatrix<From, To>{TypedMatrix<const From>(x.matrix()), TypedMatrix<To>(y.matrix()),
                                transpose, factor});
}

void MapAny(Operand& x, Operand& y, bool transpose, const MapFactor& factor) {
  WithElement(x.dtype(), [&]<typename From>(From*) {
    WithElement(y.dtype(), [&]<typename To>(To*) { Map<From, To>(x, y, transpose, factor); });
  });
}

RC_GTEST_FIXTURE_PROP(GpuKernelsTest, ConversionsHaveTheHostsBits, ()) {
  const Shape s;
  const bool transpose = *rc::gen::arbitrary<bool>();
  Operand x = AnyMatrix(AnyType(), s.rows, s.cols, s.batch);
  Operand y =
      AnyMatrix(AnyType(), transpose ? s.cols : s.rows, transpose ? s.rows : s.cols, s.batch);
  Operand expected = y;
  std::mt19937_64 random(AnySeed());
  Fill(x, random);
  Finish(math_.Convert(*stream_, x.matrix(), transpose, expected.matrix()));
  MapAny(x, y, transpose, {.kind = MapFactor::kOne});
  RC_ASSERT(SameBits(y, expected));
}

RC_GTEST_FIXTURE_PROP(GpuKernelsTest, AppliedMatricesHaveTheHostsBits, ()) {
  const Shape s;
  const DType type = AnyType();
  const StepControl control{.skip = *rc::gen::element(0.0f, 1.0f)};
  Operand direction = AnyMatrix(DType::kF32, s.rows, s.cols, s.batch);
  Operand weight = AnyMatrix(type, s.rows, s.cols, s.batch);
  std::mt19937_64 random(AnySeed());
  Fill(direction, random);
  Fill(weight, random);
  Operand expected = weight;
  Finish(math_.ApplyMatrix(*stream_, 0.01f, 0.3f, direction.matrix(), expected.matrix(), &control));
  WithElement(type, [&]<typename W>(W*) {
    RunOnHost(ApplyTiles<W>{TypedMatrix<const float>(direction.matrix()), 0.01f, 0.3f,
                            TypedMatrix<W>(weight.matrix()), &control});
  });
  RC_ASSERT(SameBits(weight, expected));
}

RC_GTEST_FIXTURE_PROP(GpuKernelsTest, ProductsWithoutTermsHaveTheHostsBits, ()) {
  const Shape s;
  const DType type = AnyType();
  const float beta = *rc::gen::element(0.0f, 1.0f, -2.5f);
  Operand a(type, s.rows, 0, s.batch), b(type, 0, s.cols, s.batch);
  Operand c = AnyMatrix(type, s.rows, s.cols, s.batch);
  Operand d = AnyMatrix(type, s.rows, s.cols, s.batch);
  Operand expected = d;
  std::mt19937_64 random(AnySeed());
  Fill(c, random);
  Finish(math_.MatMul(
      *stream_,
      {.a = a.matrix(), .b = b.matrix(), .beta = beta, .c = c.matrix(), .d = expected.matrix()}));
  MapAny(c, d, false,
         {.kind = beta == 0 ? MapFactor::kZero : MapFactor::kConstant, .constant = beta});
  RC_ASSERT(SameBits(d, expected));
}

RC_GTEST_FIXTURE_PROP(GpuKernelsTest, ShiftedDiagonalsHaveTheHostsBits, ()) {
  const Shape s;
  const DType type = AnyType();
  Operand x = AnyMatrix(type, s.rows, s.rows, s.batch);
  Operand y = AnyMatrix(type, s.rows, s.rows, s.batch);
  Operand expected = y;
  std::mt19937_64 random(AnySeed());
  Fill(x, random);
  Finish(math_.ShiftDiagonal(*stream_, x.matrix(), 3.4445f, expected.matrix()));
  WithElement(type, [&]<typename T>(T*) {
    RunOnHost(ShiftDiagonalMatrix<T>{TypedMatrix<const T>(x.matrix()), 3.4445f,
                                     TypedMatrix<T>(y.matrix())});
  });
  RC_ASSERT(SameBits(y, expected));
}

RC_GTEST_FIXTURE_PROP(GpuKernelsTest, MirrorsWriteTheImageAndNothingElse, ()) {
  const Shape s;
  const DType type = AnyType();
  Operand d = AnyMatrix(type, s.rows, s.rows, s.batch);
  std::mt19937_64 random(AnySeed());
  d.FillNormal(random);
  const Operand before = d;
  WithElement(type,
              [&]<typename T>(T*) { RunOnHost(MirrorMatrix<T>{TypedMatrix<T>(d.matrix())}); });
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t i = 0; i < s.rows; ++i) {
      for (std::int64_t j = 0; j < s.rows; ++j) {
        RC_ASSERT(d.at(b, i, j) == (j > i ? before.at(b, j, i) : before.at(b, i, j)));
      }
    }
  }
  RC_ASSERT(d.PaddingIntact());
}

RC_GTEST_FIXTURE_PROP(GpuKernelsTest, VectorsHaveTheHostsBits, ()) {
  // Less and more than one block's part.
  const std::int64_t count = *rc::gen::element<std::int64_t>(1, 5, 2048, 2049, 5000);
  const DType type = AnyType();
  const DType weight_type = AnyType();
  const bool nesterov = *rc::gen::arbitrary<bool>();
  const StepControl control{.skip = *rc::gen::element(0.0f, 1.0f),
                            .gradient_factor = *rc::gen::element(1.0f, 0.3f)};
  const StepControl* given = *rc::gen::arbitrary<bool>() ? &control : nullptr;
  std::mt19937_64 random(AnySeed());
  Operand g(type, 1, count), sum(type, 1, count), weight(weight_type, 1, count);
  Operand m(DType::kF32, 1, count), v(DType::kF32, 1, count), u(DType::kF32, 1, count);
  for (Operand* x : {&g, &sum, &weight, &m, &u}) Fill(*x, random);
  for (std::int64_t i = 0; i < count; ++i) v.set(0, 0, i, m.at(0, 0, i) * m.at(0, 0, i));
  Operand sum2 = sum, weight2 = weight, m2 = m, v2 = v, u2 = u;
  std::int64_t steps = 6, steps2 = 6;
  const auto floats = [](Operand& x) { return static_cast<float*>(x.matrix().data); };

  Finish(math_.Add(*stream_, count, g.matrix().data, sum.matrix().data, type));
  Finish(math_.Momentum(*stream_, count, g.matrix().data, type, 0.7f, 0.95f, nesterov, floats(m),
                        floats(u), given));
  Finish(math_.Apply(*stream_, count, 0.01f, 0.3f, floats(u), weight.matrix().data, weight_type,
                     given));
  Math::AdamWArguments adamw{.count = count,
                             .gradient = g.matrix().data,
                             .gradient_type = type,
                             .gradient_scale = 0.5f,
                             .m = floats(m),
                             .v = floats(v),
                             .weight = weight.matrix().data,
                             .weight_type = weight_type,
                             .lr = 1e-2,
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .eps = 1e-8,
                             .weight_decay = 0.1,
                             .applied_steps = &steps,
                             .control = given};
  Finish(math_.AdamW(*stream_, adamw));

  adamw.m = floats(m2);
  adamw.v = floats(v2);
  adamw.weight = weight2.matrix().data;
  adamw.applied_steps = &steps2;
  WithElement(type, [&]<typename G>(G*) {
    const auto* gradient = static_cast<const G*>(g.matrix().data);
    RunOnHost(AddVector<G>{count, gradient, static_cast<G*>(sum2.matrix().data)});
    RunOnHost(
        MomentumVector<G>{count, gradient, 0.7f, 0.95f, nesterov, floats(m2), floats(u2), given});
    WithElement(weight_type, [&]<typename W>(W*) {
      RunOnHost(ApplyVector<W>{count, 0.01f, 0.3f, floats(u2),
                               static_cast<W*>(weight2.matrix().data), given});
      RunOnHost(AdamWVector<G, W>{adamw});
    });
  });
  RunOnHost(CountStep{&steps2, given});
  RC_ASSERT(SameBits(sum2, sum));
  RC_ASSERT(SameBits(m2, m));
  RC_ASSERT(SameBits(v2, v));
  RC_ASSERT(SameBits(u2, u));
  RC_ASSERT(SameBits(weight2, weight));
  RC_ASSERT(steps2 == steps);
}

// Within one rounding of the host's, whose sums are as exact; not finite where the host's is not.
void RcNear(const Operand& got, const Operand& expected) {
  for (std::int64_t b = 0; b < got.batch(); ++b) {
    for (std::int64_t i = 0; i < got.rows(); ++i) {
      for (std::int64_t j = 0; j < got.cols(); ++j) {
        const double value = expected.at(b, i, j);
        if (!std::isfinite(value)) {
          RC_ASSERT(std::isnan(value) == std::isnan(got.at(b, i, j)));
          continue;
        }
        RC_ASSERT(std::abs(got.at(b, i, j) - value) <=
                  2 * testing::RoundingError(got.dtype(), std::abs(value)));
      }
    }
  }
  RC_ASSERT(got.PaddingIntact());
}

RC_GTEST_FIXTURE_PROP(GpuKernelsTest, NormalizingIsTheHosts, ()) {
  const Shape s;
  const bool transpose = *rc::gen::arbitrary<bool>();
  const float floor = *rc::gen::element(0.0f, 1.0f, 1e3f);
  const bool clamp = *rc::gen::arbitrary<bool>();
  const std::int64_t parts = *rc::gen::inRange(1, 9);
  Operand u = AnyMatrix(DType::kF32, s.rows, s.cols, s.batch);
  Operand x =
      AnyMatrix(AnyType(), transpose ? s.cols : s.rows, transpose ? s.rows : s.cols, s.batch);
  Operand expected = x;
  std::mt19937_64 random(AnySeed());
  Fill(u, random);
  Finish(math_.Normalize(*stream_, u.matrix(), transpose, floor, clamp, expected.matrix()));
  std::vector<double> sums(static_cast<std::size_t>(s.batch * parts), -1.0);
  RunOnHost(SquareSums<float>{TypedMatrix<const float>(u.matrix()), parts, sums.data()});
  MapAny(u, x, transpose,
         {.kind = MapFactor::kOverNorm,
          .sums = sums.data(),
          .parts = parts,
          .floor = floor,
          .clamp = clamp});
  RcNear(x, expected);
}

RC_GTEST_FIXTURE_PROP(GpuKernelsTest, RowNormsAreTheHosts, ()) {
  const Shape s;
  const bool columns = *rc::gen::arbitrary<bool>();
  const float eps = *rc::gen::element(0.0f, 1e-8f, 3.0f);
  Operand x = AnyMatrix(AnyType(), s.rows, s.cols, s.batch);
  Operand y = AnyMatrix(AnyType(), s.rows, s.cols, s.batch);
  Operand expected = y;
  std::mt19937_64 random(AnySeed());
  Fill(x, random);
  Finish(math_.RowNorm(*stream_, x.matrix(), columns, eps, 0.15f, expected.matrix()));
  WithElement(x.dtype(), [&]<typename From>(From*) {
    WithElement(y.dtype(), [&]<typename To>(To*) {
      const TypedMatrix<const From> from(x.matrix());
      const TypedMatrix<To> to(y.matrix());
      if (columns) {
        RunOnHost(NormalizeColumns<From, To>{from, eps, 0.15f, to});
      } else {
        RunOnHost(NormalizeRows<From, To>{from, eps, 0.15f, to});
      }
    });
  });
  RcNear(y, expected);
}

RC_GTEST_FIXTURE_PROP(GpuKernelsTest, NormsAreTheHosts, ()) {
  const std::int64_t count = *rc::gen::element<std::int64_t>(0, 1, 300, 5000);
  const std::int64_t parts = count == 0 ? 0 : *rc::gen::inRange(1, 9);
  Operand x(AnyType(), 1, count);
  std::mt19937_64 random(AnySeed());
  Fill(x, random);
  float norm = -1, expected = -1;
  Finish(math_.Norm(*stream_, count, x.matrix().data, x.dtype(), 0.5f, &expected));
  std::vector<double> sums(8, -1.0);
  WithElement(x.dtype(), [&]<typename T>(T*) {
    RunOnHost(SquareSums<T>{TypedMatrix<const T>(x.matrix()), parts, sums.data()});
  });
  RunOnHost(NormOfSums{sums.data(), parts, 0.5f, &norm});
  if (std::isfinite(expected)) {
    RC_ASSERT(std::abs(norm - expected) <= 0x1p-23 * expected);
  } else {
    RC_ASSERT(std::isnan(norm) == std::isnan(expected));
  }
}

RC_GTEST_FIXTURE_PROP(GpuKernelsTest, VerdictsAreTheHosts, ()) {
  const auto matrices = *rc::gen::inRange<std::int32_t>(0, 300);
  const auto ranks = *rc::gen::inRange<std::int32_t>(1, 9);
  std::mt19937_64 random(AnySeed());
  const auto one_in = [&](int n) { return random() % static_cast<std::uint64_t>(n) == 0; };
  std::vector<std::int32_t> checked;
  std::vector<float> norms;
  std::vector<std::uint8_t> reduced;
  std::vector<float> values;
  for (std::int32_t m = 0; m < matrices; ++m) {
    if (!one_in(3)) checked.push_back(m);
    norms.push_back(one_in(200)   ? std::numeric_limits<float>::quiet_NaN()
                    : one_in(200) ? std::numeric_limits<float>::infinity()
                    : one_in(9)   ? 3e38f
                                  : static_cast<float>(random() % 1000) / 64);
    reduced.push_back(one_in(2) ? 1 : 0);
    // Most matrices are in order: few of many stop a step.
    const float lr = one_in(300) ? -0.5f : -0.25f;
    values.insert(values.end(),
                  {one_in(100) ? kGradientMissing + 1 : kGradientPresent, 0.25f, lr, 0.125f,
                   -0.125f, one_in(100) ? 0.0f : -1.0f, one_in(100) ? 2.0f : 0.0f});
  }
  values.insert(values.end(), {8, one_in(9) ? -4.0f : -8.0f});
  for (std::int32_t r = 0; r < ranks; ++r) values.push_back(static_cast<float>(r));
  std::vector<StepControl> controls(static_cast<std::size_t>(matrices) + 1);
  std::vector<StepControl> controls2 = controls;
  std::vector<float> values2 = values;
  VerdictArguments arguments{.matrices = matrices,
                             .ranks = ranks,
                             .rank = ranks - 1,
                             .checked = checked.data(),
                             .checked_count = static_cast<std::int32_t>(checked.size()),
                             .norms = norms.data(),
                             .reduced = reduced.data()};
  arguments.rules = {.missing_skips = *rc::gen::arbitrary<bool>(),
                     .non_finite_is_error = *rc::gen::arbitrary<bool>(),
                     .non_finite_skips_step = *rc::gen::arbitrary<bool>(),
                     .max_gradient_norm = *rc::gen::element(0.0, 1.0)};
  arguments.values = values.data();
  arguments.controls = controls.data();
  Finish(math_.Tally(*stream_, arguments));
  // Of the tally only the rank's norm is a sum.
  VerdictArguments again = arguments;
  again.values = values2.data();
  again.controls = controls2.data();
  RunOnHost(TallyNorms{again});
  float& norm = values2[values2.size() - 1];
  // Of finite norms it may be infinite.
  RC_ASSERT(norm == values.back() || std::abs(norm - values.back()) <= 0x1p-23 * values.back());
  norm = values.back();
  RC_ASSERT(values2 == values);
  Finish(math_.Decide(*stream_, arguments));
  RunOnHost(DecideStep{again});
  for (std::size_t m = 0; m < controls.size(); ++m) {
    RC_ASSERT(controls2[m].skip == controls[m].skip);
    RC_ASSERT(controls2[m].gradient_factor == controls[m].gradient_factor);
  }
}

}  // namespace
}  // namespace weft::device
