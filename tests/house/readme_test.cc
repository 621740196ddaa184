// The README and pages show code that is compiled, and name files that are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/house/tree.h"

namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

using weft::testing::kRoot;
using weft::testing::Read;

// The contents of the blocks that begin with "```language".
std::vector<std::string> Blocks(const std::string& text, const std::string& language) {
  const std::string fence = "```";
  std::vector<std::string> blocks;
  std::size_t at = 0;
  while ((at = text.find(fence + language + "\n", at)) != std::string::npos) {
    at += fence.size() + language.size() + 1;
    const std::size_t end = text.find(fence, at);
    blocks.push_back(text.substr(at, end - at));
    at = end + fence.size();
  }
  return blocks;
}

TEST(Readme, ShowsTheCodeThatIsCompiled) {
  const std::string readme = Read(kRoot / "README.md");
  const auto code = Blocks(readme, "cpp"), cmake = Blocks(readme, "cmake");
  ASSERT_EQ(code.size(), 1u);
  ASSERT_EQ(cmake.size(), 1u);
  EXPECT_THAT(Read(kRoot / "examples" / "readme" / "train.cc"), HasSubstr(code[0]));
  EXPECT_THAT(Read(kRoot / "examples" / "readme" / "CMakeLists.txt"), HasSubstr(cmake[0]));
}

TEST(OwnedPage, ShowsTheCodeThatIsCompiled) {
  const auto code = Blocks(Read(kRoot / "docs" / "owned.md"), "cpp");
  ASSERT_EQ(code.size(), 1u);
  EXPECT_THAT(Read(kRoot / "examples" / "owned" / "train.cc"), HasSubstr(code[0]));
}

TEST(CheckpointPage, ShowsTheCodeThatIsCompiled) {
  const auto code = Blocks(Read(kRoot / "docs" / "checkpoint.md"), "cpp");
  ASSERT_EQ(code.size(), 1u);
  EXPECT_THAT(Read(kRoot / "examples" / "checkpoint" / "train.cc"), HasSubstr(code[0]));
}

TEST(Readme, NamesFilesThatAreThere) {
  std::vector<fs::path> pages = {kRoot / "README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  EXPECT_GT(pages.size(), 5u);
  const std::regex link("\\]\\(([^):#]+)\\)"), example("\\bexamples/[a-z0-9_./]*[a-z0-9_]");
  for (const fs::path& page : pages) {
    const std::string text = Read(page);
    for (std::sregex_iterator i(text.begin(), text.end(), link), end; i != end; ++i) {
      EXPECT_TRUE(fs::exists(page.parent_path() / (*i)[1].str())) << page << ": " << (*i)[1];
    }
    for (std::sregex_iterator i(text.begin(), text.end(), example), end; i != end; ++i) {
      EXPECT_TRUE(fs::exists(kRoot / i->str())) << page << ": " << i->str();
    }
  }
}

}  // namespace
