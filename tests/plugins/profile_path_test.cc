// Where profiles go.
#include <gtest/gtest.h>

#include "plugins/nccl/profile_file.h"

namespace weft::testing {
namespace {

using nccl_plugin::ProfilePath;

TEST(ProfilePathTest, RankAndCommunicatorAreFilledInWhereverTheyStand) {
  EXPECT_EQ(ProfilePath("/a/%r/%c.json", 7, 0xab), "/a/7/00000000000000ab.json");
  EXPECT_EQ(ProfilePath("%c%r%r%%x%", 7, 0xab), "00000000000000ab77%%x%");
}

TEST(ProfilePathTest, WhatIsMissingGoesBeforeTheExtension) {
  EXPECT_EQ(ProfilePath("p.json", 7, 1), "p-0000000000000001-7.json");
  EXPECT_EQ(ProfilePath("/a.b/p", 7, 1), "/a.b/p-0000000000000001-7");
  EXPECT_EQ(ProfilePath("p%r.json", 7, 1), "p7-0000000000000001.json");
  EXPECT_EQ(ProfilePath("p%c.json", 7, 1), "p0000000000000001-7.json");
}

}  // namespace
}  // namespace weft::testing
