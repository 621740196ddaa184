// Conversions between fp32 and the 16-bit types, against their definitions.
#include "device/half.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "tests/support/halves.h"

namespace weft::device {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

float Widened(DType type, std::uint16_t bits) {
  return type == DType::kBF16 ? ToFloat(BF16{bits}) : ToFloat(F16{bits});
}
std::uint16_t Narrowed(DType type, float value) {
  return type == DType::kBF16 ? ToBF16(value).bits : ToF16(value).bits;
}
bool IsNan(DType type, std::uint16_t bits) { return std::isnan(testing::HalfValue(type, bits)); }

class Half : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Half, ::testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& type) { return std::string(Name(type.param)); });

TEST_P(Half, EveryPatternIsReadByDefinitionAndWrittenBack) {
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const double expected = testing::HalfValue(GetParam(), bits);
    const float value = Widened(GetParam(), bits);
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << pattern;
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << pattern;
      ASSERT_TRUE(IsNan(GetParam(), Narrowed(GetParam(), value))) << pattern;
      continue;
    }
    ASSERT_EQ(value, expected) << pattern;
    ASSERT_EQ(Narrowed(GetParam(), value), bits) << pattern;
    ASSERT_EQ(testing::HalfBits(GetParam(), expected), bits) << "the test's own " << pattern;
  }
}

// Between two neighbours the nearer wins, in the middle the even one; subnormals are no exception,
// and infinity is the neighbour of the largest.
TEST_P(Half, RoundsToTheNearerNeighbourAndToTheEvenOne) {
  const testing::Format format = testing::FormatOf(GetParam());
  const std::uint16_t infinity = testing::HalfBits(GetParam(), kInf);
  for (std::uint32_t pattern = 0; pattern < infinity; ++pattern) {
    const auto low = static_cast<std::uint16_t>(pattern);
    const auto high = static_cast<std::uint16_t>(pattern + 1);
    const double above = high == infinity ? std::ldexp(1.0, format.exponent_end)
                                          : testing::HalfValue(GetParam(), high);
    const auto middle = static_cast<float>((testing::HalfValue(GetParam(), low) + above) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      const std::uint16_t bit = sign < 0 ? 0x8000 : 0;
      const auto narrowed = [&](float value) { return Narrowed(GetParam(), sign * value) ^ bit; };
      ASSERT_EQ(narrowed(middle), low % 2 == 0 ? low : high) << pattern;
      ASSERT_EQ(narrowed(std::nextafter(middle, 0.0f)), low) << pattern;
      ASSERT_EQ(narrowed(std::nextafter(middle, kInf)), high) << pattern;
    }
  }
}

TEST_P(Half, EveryNanStaysOne) {
  // One in the kept half, one in the dropped half only.
  for (const std::uint32_t pattern : {0x7fc00000u, 0x7f800001u, 0xff801fffu, 0xffffffffu}) {
    const std::uint16_t narrow = Narrowed(GetParam(), std::bit_cast<float>(pattern));
    EXPECT_TRUE(IsNan(GetParam(), narrow)) << pattern;
    EXPECT_EQ(narrow >> 15, pattern >> 31) << pattern;
  }
}

void AgreesWithArithmetic(float value) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    const double expected = testing::RoundTo(type, value);
    RC_ASSERT(static_cast<double>(Widened(type, Narrowed(type, value))) == expected);
  }
}

RC_GTEST_PROP(HalfLaw, AgreesWithRoundingByArithmetic, ()) {
  const auto value = std::bit_cast<float>(*rc::gen::arbitrary<std::uint32_t>());
  RC_PRE(!std::isnan(value));
  AgreesWithArithmetic(value);
}

RC_GTEST_PROP(HalfLaw, AgreesWithRoundingByArithmeticAroundTheRangeOfF16, ()) {
  const auto fraction = *rc::gen::inRange<std::uint32_t>(0, 1u << 23);
  const auto exponent = *rc::gen::inRange<std::uint32_t>(127 - 27, 127 + 18);
  const auto sign = *rc::gen::inRange<std::uint32_t>(0, 2);
  AgreesWithArithmetic(std::bit_cast<float>(sign << 31 | exponent << 23 | fraction));
}

#if defined(__FLT16_MANT_DIG__) && !defined(__clang__)
__extension__ using CompilersHalf = _Float16;

// A prime step through all fp32 numbers.
TEST(F16, AgreesWithTheCompilersType) {
  for (std::uint64_t pattern = 0; pattern < std::uint64_t{1} << 32; pattern += 4093) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(pattern));
    const auto expected = std::bit_cast<std::uint16_t>(static_cast<CompilersHalf>(value));
    if (std::isnan(value)) continue;
    ASSERT_EQ(ToF16(value).bits, expected) << value;
  }
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const auto expected = static_cast<float>(std::bit_cast<CompilersHalf>(bits));
    if (std::isnan(expected)) continue;
    ASSERT_EQ(ToFloat(F16{bits}), expected) << pattern;
  }
}
#endif

}  // namespace
}  // namespace weft::device
