// The main of every test program: prints the seed that all random choices derive from and hands it
// to rapidcheck, so that a failing run can be repeated.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/support/seed.h"

namespace weft::testing {

std::uint64_t Seed() {
  static const std::uint64_t seed = [] {
    if (const char* given = std::getenv("WEFT_TEST_SEED")) return std::strtoull(given, nullptr, 10);
    return static_cast<unsigned long long>(std::random_device{}());
  }();
  return seed;
}

}  // namespace weft::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!::testing::GTEST_FLAG(list_tests)) {
    std::printf("WEFT_TEST_SEED=%" PRIu64 "\n", weft::testing::Seed());
    if (!std::getenv("RC_PARAMS")) {
      setenv("RC_PARAMS", ("seed=" + std::to_string(weft::testing::Seed())).c_str(), 1);
    }
  }
  return RUN_ALL_TESTS();
}
