// Which library a variable's value finds: NCCL's rules.
#include "base/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kVariable[] = "WEFT_LOAD_TEST_PLUGIN";

// The program's own, for STATIC_PLUGIN.
extern "C" __attribute__((visibility("default"), used)) const int weft_load_test_static = 7;

class SharedLibrary : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv(kVariable); }

  // By the value of the variable; "weft-load-test" is in the program's search path.
  static absl::StatusOr<int> Find(const std::optional<std::string>& value,
                                  const std::string& prefix = "libweft-load-test",
                                  const std::string& symbol = "weft_load_test") {
    value ? ::setenv(kVariable, value->c_str(), 1) : ::unsetenv(kVariable);
    const absl::StatusOr<void*> found =
        base::FindSymbol({"the test library", kVariable, prefix}, symbol);
    if (!found.ok()) return found.status();
    return *static_cast<const int*>(*found);
  }
};

TEST_F(SharedLibrary, UnsetTakesThePlainName) {
  EXPECT_EQ(*Find(std::nullopt), 1);
  EXPECT_EQ(*Find(""), 1);
}

TEST_F(SharedLibrary, ASuffixIsAppendedToThePrefix) { EXPECT_EQ(*Find("two"), 2); }

TEST_F(SharedLibrary, AFileNameIsTakenAsItIs) {
  EXPECT_EQ(*Find("libweft-load-test-two.so"), 2);
  // A name of that form is no suffix, though a file of the suffixed name exists.
  const std::string message(Find("libthree.so").status().message());
  EXPECT_THAT(message, AllOf(HasSubstr("libthree.so"), HasSubstr(kVariable)));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("libweft-load-test-libthree.so")));
}

TEST_F(SharedLibrary, APathIsTakenAsItIs) {
  EXPECT_EQ(*Find(WEFT_LOAD_TEST_FOLDER "/libweft-load-test-two.so"), 2);
  EXPECT_EQ(Find("/two").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SharedLibrary, NoneIsNoLibrary) {
  const absl::Status status = Find("none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "the test library is not to be used: WEFT_LOAD_TEST_PLUGIN is none");
}

TEST_F(SharedLibrary, StaticLooksInTheProgram) {
  EXPECT_EQ(*Find("STATIC_PLUGIN", "libweft-load-test", "weft_load_test_static"), 7);
  EXPECT_THAT(
      std::string(Find("STATIC_PLUGIN", "libweft-load-test", "weft_no_such").status().message()),
      HasSubstr("is not in the program: it has no symbol weft_no_such"));
}

TEST_F(SharedLibrary, WhatIsMissingIsNamed) {
  EXPECT_THAT(std::string(Find("four").status().message()),
              AllOf(HasSubstr("four: cannot open shared object file"),
                    HasSubstr("libweft-load-test-four.so: cannot open shared object file")));
  EXPECT_THAT(std::string(Find(std::nullopt, "libweft-load-test", "weft_other").status().message()),
              HasSubstr("is not in libweft-load-test.so: it has no symbol weft_other"));
}

TEST_F(SharedLibrary, OnlyWhatIsLoadedIsLookedInto) {
  constexpr char kTwo[] = "libweft-load-test-two.so";
  ASSERT_TRUE(Find("two").ok());
  EXPECT_EQ(*static_cast<const int*>(base::LoadedSymbol(kTwo, "weft_load_test")), 2);
  EXPECT_EQ(base::LoadedSymbol(kTwo, "weft_no_such"), nullptr);
  // It is there to be loaded.
  EXPECT_EQ(base::LoadedSymbol("libweft-load-test-libthree.so.so", "weft_load_test"), nullptr);
}

}  // namespace
}  // namespace weft
