// How collectives of several communicators are kept apart, chosen from what the process was given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/nccl/launch_order.h"

namespace weft::collectives::nccl {
namespace {

using ::testing::HasSubstr;

const LaunchFacts kAllHolds = {"1", 22809, 13000, 13000};

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(LaunchOrder, IsNcclsWhereThatIsSureToHold) {
  for (const char* value : {"1", "2", "0x1", "01"}) {
    LaunchFacts facts = kAllHolds;
    facts.variable = value;
    for (const LaunchOrder asked : {LaunchOrder::kAuto, LaunchOrder::kImplicit}) {
      const auto chosen = ChooseLaunchOrder(asked, facts);
      ASSERT_TRUE(chosen.ok()) << chosen.status();
      EXPECT_FALSE(chosen->serialized) << value;
      EXPECT_THAT(chosen->note, HasSubstr("NCCL_LAUNCH_ORDER_IMPLICIT"));
    }
  }
}

TEST(LaunchOrder, ASerialOneIsGivenWhateverHolds) {
  const auto chosen = ChooseLaunchOrder(LaunchOrder::kSerialized, kAllHolds);
  ASSERT_TRUE(chosen.ok());
  EXPECT_TRUE(chosen->serialized);
  EXPECT_THAT(chosen->note, HasSubstr("as asked for"));
}

TEST(LaunchOrder, EachThingThatIsLackingIsNamed) {
  struct Case {
    LaunchFacts facts;
    std::string named;
  };
  const std::string variable =
      "NCCL_LAUNCH_ORDER_IMPLICIT=1 was not in the environment when the program started";
  const std::vector<Case> cases = {
      {{std::nullopt, 22809, 13000, 13000}, variable},
      {{"0", 22809, 13000, 13000}, variable},
      {{"", 22809, 13000, 13000}, variable},
      {{"yes", 22809, 13000, 13000}, variable},
      {{"1", 22505, 13000, 13000}, "NCCL 2.25 does not order launches"},
      {{"1", 22809, 12020, 13000}, "the runtime is 12.2, the driver 13.0"},
      {{"1", 22809, 13000, 12020}, "the runtime is 13.0, the driver 12.2"},
  };
  for (const Case& c : cases) {
    const auto automatic = ChooseLaunchOrder(LaunchOrder::kAuto, c.facts);
    ASSERT_TRUE(automatic.ok());
    EXPECT_TRUE(automatic->serialized);
    EXPECT_THAT(automatic->note, HasSubstr(c.named));
    const auto asked = ChooseLaunchOrder(LaunchOrder::kImplicit, c.facts);
    EXPECT_EQ(asked.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Text(asked.status()), HasSubstr(c.named));
  }
}

}  // namespace
}  // namespace weft::collectives::nccl
