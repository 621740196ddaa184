#include "weft/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/utc.h"

namespace weft {
namespace {

TEST(Version, HasThreeNumbers) {
  EXPECT_THAT(std::string(Version()), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(Utc, IsWrittenToTheSecond) {
  EXPECT_THAT(base::UtcNow(),
              ::testing::MatchesRegex("20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:"
                                      "[0-6][0-9]Z"));
}

}  // namespace
}  // namespace weft
