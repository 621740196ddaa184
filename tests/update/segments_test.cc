#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "update/recipe.h"
#include "update/segment_advisor.h"
#include "weft/update.h"

namespace weft {
namespace {

const double kFp16 = SpuriousEigenvalue(DType::kF16);
const double kBf16 = SpuriousEigenvalue(DType::kBF16);

using Segments = std::vector<int>;

double ConditionOf(const Coefficients& coefficients, const Segments& segments, double epsilon) {
  return AnalyzeSegments(coefficients, segments, epsilon).condition;
}

// Figures published for this analysis, to the digits given there.
TEST(Segments, ConditionFiguresAreThePublishedOnes) {
  const Coefficients quintic = Coefficients::Quintic();
  EXPECT_NEAR(ConditionOf(quintic, {3, 2}, kFp16), 62.5, 0.1);
  EXPECT_NEAR(ConditionOf(quintic, {2, 3}, kFp16), 74.1, 0.1);
  EXPECT_NEAR(ConditionOf(quintic, {2, 1, 2}, kFp16), 19.1, 0.1);
  EXPECT_NEAR(ConditionOf(quintic, {2, 2, 1}, kFp16), 20.2, 0.1);
  EXPECT_NEAR(ConditionOf(quintic, {2, 3}, kBf16), 147, 1);
  EXPECT_GT(ConditionOf(quintic, {3, 2}, kBf16), 1e9);
  EXPECT_NEAR(ConditionOf(quintic, {2, 1, 2}, kBf16), 22.5, 0.1);
  EXPECT_NEAR(ConditionOf(quintic, {2, 2, 1}, kBf16), 22.6, 0.1);
  const Coefficients polar = Coefficients::PolarExpress();
  EXPECT_NEAR(ConditionOf(polar, {2, 3}, kFp16), 84.6, 0.1);
  EXPECT_NEAR(ConditionOf(polar, {1, 1, 3}, kFp16), 60.9, 0.1);
  EXPECT_NEAR(ConditionOf(polar, {1, 2, 2}, kFp16), 83.4, 0.1);
  EXPECT_NEAR(ConditionOf(polar, {1, 1, 3}, kBf16), 81.7, 0.1);
  EXPECT_NEAR(ConditionOf(polar, {1, 2, 2}, kBf16), 86, 0.5);
  EXPECT_GT(ConditionOf(polar, {2, 2, 1}, kBf16), 1e12);
  const Coefficients you = Coefficients::You();
  EXPECT_NEAR(ConditionOf(you, {2, 3}, kFp16), 53.2, 0.1);
  EXPECT_NEAR(ConditionOf(you, {1, 2, 2}, kFp16), 34.8, 0.1);
  EXPECT_NEAR(ConditionOf(you, {1, 2, 2}, kBf16), 34.1, 0.1);
  EXPECT_GT(ConditionOf(you, {2, 2, 1}, kBf16), 1e6);
}

TEST(Segments, Fp16HasAnEighthOfTheSpuriousEigenvalueOfBf16) {
  EXPECT_DOUBLE_EQ(8 * kFp16, kBf16);
  EXPECT_EQ(kFp16, -4e-4);
}

TEST(Segments, UnsafeSetsAreMarked) {
  EXPECT_TRUE(AnalyzeSegments(Coefficients::Quintic(), {2, 2, 1}, kBf16).safe);
  EXPECT_FALSE(AnalyzeSegments(Coefficients::PolarExpress(), {2, 2, 1}, kBf16).safe);
  EXPECT_FALSE(AnalyzeSegments(Coefficients::You(), {2, 2, 1}, kBf16).safe);
  EXPECT_FALSE(AnalyzeSegments(Coefficients::Quintic(), {5}, kBf16).safe);
}

TEST(Segments, Chosen) {
  EXPECT_EQ(ChooseSegments(Coefficients::Quintic(), 5, kBf16), (Segments{2, 2, 1}));
  EXPECT_EQ(ChooseSegments(Coefficients::PolarExpress(), 5, kBf16), (Segments{1, 2, 2}));
  EXPECT_EQ(ChooseSegments(Coefficients::You(), 5, kBf16), (Segments{1, 2, 2}));
  EXPECT_EQ(ChooseSegments(Coefficients::Quintic(), 5, kFp16), (Segments{2, 3}));
  EXPECT_EQ(ChooseSegments(Coefficients::PolarExpress(), 5, kFp16), (Segments{2, 3}));
  EXPECT_EQ(ChooseSegments(Coefficients::You(), 5, kFp16), (Segments{2, 3}));
  EXPECT_EQ(ChooseSegments(Coefficients::Quintic(), 5, -1), (Segments{0})) << "no set is safe";
}

TEST(Segments, LongRunsArePlain) {
  EXPECT_NE(ChooseSegments(Coefficients::Quintic(), 12, kFp16), (Segments{0}));
  EXPECT_EQ(ChooseSegments(Coefficients::Quintic(), 13, kFp16), (Segments{0}));
}

// Whatever is chosen is safe, adds up, and keeps its bound on the length.
RC_GTEST_PROP(SegmentsLaw, ChosenSetsAreSafeAndComplete, ()) {
  const auto all = {Coefficients::Quintic(), Coefficients::PolarExpress(), Coefficients::You()};
  const Coefficients coefficients = *rc::gen::elementOf(std::vector<Coefficients>(all));
  const int iterations = *rc::gen::inRange(1, 8);
  const double epsilon = -std::pow(10.0, -*rc::gen::inRange(2, 9));
  const int longest = *rc::gen::inRange(0, 4);
  const Segments chosen = ChooseSegments(coefficients, iterations, epsilon, longest);
  if (chosen == Segments{0}) return;
  RC_ASSERT(std::accumulate(chosen.begin(), chosen.end(), 0) == iterations);
  RC_ASSERT(AnalyzeSegments(coefficients, chosen, epsilon).safe);
  for (const int length : chosen) RC_ASSERT(longest == 0 || length <= longest);
}

TEST(Segments, OptionsResolveToTheChosenSetOnLongMatricesOnly) {
  NewtonSchulzOptions options;
  update::SegmentAdvisor advisor;
  const auto resolved = [&](std::int64_t m, std::int64_t n) {
    return *update::ResolveSegments(options, m, n, advisor);
  };
  EXPECT_EQ(resolved(64, 64), (Segments{0}));
  EXPECT_EQ(resolved(64, 70), (Segments{0})) << "saves too little";
  EXPECT_EQ(resolved(64, 256), (Segments{2, 2, 1}));
  options.operand_type = DType::kBF16;
  options.coefficients = Coefficients::PolarExpress();
  EXPECT_EQ(resolved(64, 256), (Segments{1, 2, 2}));
  options.operand_type = DType::kF16;
  EXPECT_EQ(resolved(64, 256), (Segments{2, 2, 1})) << "safe here, and no longer than 2";
  options.segments = {2, 3};
  EXPECT_EQ(resolved(64, 64), (Segments{2, 3})) << "as asked";
}

TEST(SegmentAdvisor, AnswersAsTheAnalysisAndRemembers) {
  update::SegmentAdvisor advisor;
  std::set<const Segments*> answers;
  int kinds = 0;
  for (const auto& coefficients :
       {Coefficients::Quintic(), Coefficients::PolarExpress(), Coefficients::You()}) {
    for (const int iterations : {4, 5}) {
      for (const DType type : kDTypes) {
        NewtonSchulzOptions options;
        options.coefficients = coefficients;
        options.iterations = iterations;
        options.operand_type = type;
        const Segments& first = advisor.Choose(options);
        EXPECT_EQ(first, ChooseSegments(coefficients, iterations, SpuriousEigenvalue(type),
                                        LongestSegment(type)));
        options.norm_floor = 1;
        options.coefficients.name = "another name";
        EXPECT_EQ(&advisor.Choose(options), &first) << "not what it depends on";
        answers.insert(&first);
        ++kinds;
      }
    }
  }
  EXPECT_EQ(answers.size(), static_cast<std::size_t>(kinds));
}

TEST(SegmentAdvisor, WarnsOfUnsafeSegmentsWithWhatWouldBeSafe) {
  update::SegmentAdvisor advisor;
  NewtonSchulzOptions options;
  options.coefficients = Coefficients::PolarExpress();
  options.operand_type = DType::kBF16;
  const auto warning = [&](Segments segments) {
    options.segments = std::move(segments);
    return advisor.Warning(options);
  };
  EXPECT_EQ(warning({2, 2, 1}),
            "segments [2,2,1] are unsafe for polar_express in bf16: condition 4.6e+12, safe is at "
            "most 100; [1,2,2] would be safe, with 86");
  EXPECT_EQ(warning({2, 2, 1}), warning({2, 2, 1}));
  EXPECT_NE(warning({2, 3}), "");
  for (const Segments& fine :
       {Segments{}, Segments{0}, Segments{1, 2, 2}, Segments{1, 1, 1, 1, 1}}) {
    EXPECT_EQ(warning(fine), "") << ::testing::PrintToString(fine);
  }
  for (const DType type : {DType::kF32, DType::kF16}) {
    options.operand_type = type;
    EXPECT_EQ(warning({2, 2, 1}), "") << "safe in " << Name(type);
    EXPECT_EQ(warning({2, 3}), "") << "safe in " << Name(type);
  }
  // x - x^3 turns a singular value of one into zero: no two iterations are safe together.
  options.coefficients = {"cubic", {{1, -1, 0}}};
  options.iterations = 2;
  EXPECT_THAT(warning({2}), ::testing::EndsWith("; plain Newton-Schulz would be safe"));
}

// Warned of exactly where the analysis says so.
RC_GTEST_PROP(SegmentAdvisorLaw, WarnsWhereTheAnalysisFindsASetUnsafe, ()) {
  NewtonSchulzOptions options;
  options.coefficients =
      *rc::gen::element(Coefficients::Quintic(), Coefficients::PolarExpress(), Coefficients::You());
  options.operand_type = *rc::gen::elementOf(kDTypes);
  options.segments = *rc::gen::container<Segments>(*rc::gen::inRange(1, 4), rc::gen::inRange(1, 4));
  options.iterations = std::accumulate(options.segments.begin(), options.segments.end(), 0);
  update::SegmentAdvisor advisor;
  const bool gram = std::any_of(options.segments.begin(), options.segments.end(),
                                [](int length) { return length > 1; });
  const bool safe = AnalyzeSegments(options.coefficients, options.segments,
                                    SpuriousEigenvalue(options.operand_type))
                        .safe;
  RC_ASSERT(advisor.Warning(options).empty() == (safe || !gram));
}

}  // namespace
}  // namespace weft
