#include "base/link_cost.h"

#include <gtest/gtest.h>

namespace weft::base {
namespace {

constexpr Link kLink{.latency_us = 10, .gigabytes_per_second = 2};

TEST(CollectiveSeconds, FollowsTheRingFormulas) {
  // 4 ranks: 3 hops of 10 us; 8 MB over 2 GB/s is 4 ms.
  EXPECT_DOUBLE_EQ(CollectiveSeconds(Pattern::kRooted, 4, 8e6, kLink), 30e-6 + 4e-3);
  EXPECT_DOUBLE_EQ(CollectiveSeconds(Pattern::kScattered, 4, 8e6, kLink), 30e-6 + 3e-3);
  EXPECT_DOUBLE_EQ(CollectiveSeconds(Pattern::kParts, 4, 8e6, kLink), 30e-6 + 3e-3);
  EXPECT_DOUBLE_EQ(CollectiveSeconds(Pattern::kAllReduce, 4, 8e6, kLink), 60e-6 + 6e-3);
  EXPECT_DOUBLE_EQ(CollectiveSeconds(Pattern::kBarrier, 4, 8e6, kLink), 30e-6);
}

TEST(CollectiveSeconds, IsZeroForOneRankAndForAFreeLink) {
  EXPECT_EQ(CollectiveSeconds(Pattern::kAllReduce, 1, 8e6, kLink), 0);
  EXPECT_EQ(CollectiveSeconds(Pattern::kAllReduce, 4, 8e6, Link{}), 0);
}

TEST(RootComplexPasses, OnlyAClosedRingPassesAsOftenAsItCrosses) {
  EXPECT_EQ(RootComplexPasses(Pattern::kAllReduce, 4, 4), 4);
  EXPECT_EQ(RootComplexPasses(Pattern::kScattered, 4, 4), 4);
  EXPECT_EQ(RootComplexPasses(Pattern::kRooted, 4, 4), 3);
  EXPECT_EQ(RootComplexPasses(Pattern::kRooted, 2, 4), 2);
  EXPECT_EQ(RootComplexPasses(Pattern::kParts, 4, 4), 1);
}

}  // namespace
}  // namespace weft::base
