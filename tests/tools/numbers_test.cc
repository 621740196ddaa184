#include "tools/weft/numbers.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/halves.h"
#include "tools/weft/seeded.h"

namespace weft::tool {
namespace {

TEST(Half, EveryValueIsReadByDefinitionAndWrittenBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double expected = testing::HalfValue(DType::kF16, half);
    const float value = HalfToFloat(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
      continue;
    }
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(FloatToHalf(value), half) << bits;
  }
}

// Between two neighbours the nearer wins, in the middle the even one.
TEST(Half, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits);
    const auto high = static_cast<std::uint16_t>(bits + 1);
    const float middle = (HalfToFloat(low) + HalfToFloat(high)) / 2;
    ASSERT_EQ(FloatToHalf(middle), bits % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, INFINITY)), high) << bits;
  }
  EXPECT_EQ(FloatToHalf(65519.9f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
}

TEST(Bf16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(FloatToBf16(Bf16ToFloat(low)), low);
    const float middle = std::bit_cast<float>(bits << 16 | 0x8000u);
    ASSERT_EQ(FloatToBf16(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(bits << 16 | 0x7fffu)), bits);
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(bits << 16 | 0x8001u)), bits + 1);
  }
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(NAN))));
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0x7f800001u)))));
}

RC_GTEST_PROP(Numbers, RoundedIsTheNearestValueOfTheType, ()) {
  const double value = *rc::gen::arbitrary<double>() * *rc::gen::element(1e-6, 1.0, 1e3);
  for (const DType type : kDTypes) {
    // By way of fp32, where a double of more digits is rounded first.
    RC_ASSERT(Rounded(type, value) == testing::RoundTo(type, testing::RoundTo(DType::kF32, value)));
  }
}

TEST(Numbers, DoublesBeyondFloatBecomeInfinite) {
  const std::vector<double> values = {1e300, -1e300, 0.1, -0.0, INFINITY};
  std::vector<float> narrow(values.size());
  FromFile(FileFloat::kF64, reinterpret_cast<const std::byte*>(values.data()), 5, narrow.data());
  EXPECT_EQ(narrow[0], INFINITY);
  EXPECT_EQ(narrow[1], -INFINITY);
  EXPECT_EQ(narrow[2], 0.1f);
  EXPECT_TRUE(std::signbit(narrow[3]));
  EXPECT_EQ(narrow[4], INFINITY);
}

// Reading at odd addresses is what files with a byte tensor in front ask for.
RC_GTEST_PROP(Numbers, FilesRoundTripAtAnyAlignment, (std::vector<std::uint16_t> halves)) {
  for (const FileFloat type : {FileFloat::kF16, FileFloat::kBF16}) {
    std::vector<std::byte> file(halves.size() * 2 + 1);
    if (!halves.empty()) std::memcpy(file.data() + 1, halves.data(), halves.size() * 2);
    const auto count = static_cast<std::int64_t>(halves.size());
    std::vector<std::uint16_t> working(halves.size());
    FromFile(type, file.data() + 1, count, working.data());
    std::vector<std::byte> back(halves.size() * 2 + 1);
    ToFile(type, working.data(), count, back.data() + 1);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, back.data() + 1 + 2 * i, 2);
      RC_ASSERT(bits == halves[i]);
    }
  }
}

TEST(Seeded, MomentsAreThoseOfTheNormal) {
  constexpr std::int64_t kCount = 200000;
  const SeededValues values(7, "weight", "w", 0, 0, 2.0);
  double mean = 0, square = 0, fourth = 0, neighbours = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double x = values[i];
    mean += x;
    square += x * x;
    fourth += x * x * x * x;
    neighbours += x * values[i + 1];
  }
  // Five standard errors of each moment.
  const double root = std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(mean / kCount, 0, 5 * 2 / root);
  EXPECT_NEAR(square / kCount, 4, 5 * 4 * 1.4 / root);
  EXPECT_NEAR(neighbours / kCount, 0, 5 * 4 / root);
  // The sum of four uniform values has kurtosis 2.7.
  EXPECT_NEAR(fourth / kCount / 16, 2.7, 0.1);
}

TEST(Seeded, NarrowTypesHoldTheRoundedValues) {
  const SeededValues values(7, "weight", "w", 0, 0, 2.0);
  for (const DType type : {DType::kBF16, DType::kF16}) {
    std::vector<std::uint16_t> narrow(1000);
    values.Fill(0, 1000, type, narrow.data());
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(ValueAt(type, narrow.data(), i), testing::RoundTo(type, values[i])) << i;
    }
  }
}

// A row of a matrix made on its own equals the row of the whole: what shards rely on.
RC_GTEST_PROP(Seeded, PartsEqualTheWhole, (std::uint64_t seed)) {
  const SeededValues values(seed, "gradient", "w", 3, 1, 0.5);
  const auto first = *rc::gen::inRange<std::int64_t>(0, 20);
  std::vector<float> whole(30), part(10);
  values.Fill(0, 30, DType::kF32, whole.data());
  values.Fill(first, 10, DType::kF32, part.data());
  for (int i = 0; i < 10; ++i) RC_ASSERT(part[i] == whole[first + i]);
}

TEST(Seeded, EveryArgumentMatters) {
  const auto first = [](std::uint64_t seed, std::string_view purpose, std::string_view name,
                        std::int64_t step,
                        int rank) { return SeededValues(seed, purpose, name, step, rank, 1.0)[0]; };
  const float base = first(1, "gradient", "ab", 0, 0);
  EXPECT_NE(base, first(2, "gradient", "ab", 0, 0));
  EXPECT_NE(base, first(1, "weight", "ab", 0, 0));
  EXPECT_NE(base, first(1, "gradient", "ac", 0, 0));
  EXPECT_NE(base, first(1, "gradient", "a", 0, 0));
  EXPECT_NE(base, first(1, "gradient", "ab", 1, 0));
  EXPECT_NE(base, first(1, "gradient", "ab", 0, 1));
  EXPECT_EQ(base, first(1, "gradient", "ab", 0, 0));
}

}  // namespace
}  // namespace weft::tool
