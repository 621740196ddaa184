// What the libraries show to the program that loads them, and what they need of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "tests/plugins/library.h"

namespace weft::testing {
namespace {

using Names = std::set<std::string>;

std::string PathOf(const std::string& library) {
  return std::string(WEFT_LIBRARY_DIR) + "/" + library;
}

Names ExportsOf(const std::string& library) {
  std::istringstream lines(
      OutputOf(std::string(WEFT_NM) + " -D --defined-only " + PathOf(library)));
  Names names;
  std::string line;
  while (std::getline(lines, line)) names.insert(line.substr(line.rfind(' ') + 1));
  return names;
}

Names NeedsOf(const std::string& library) {
  std::istringstream words(OutputOf(std::string(WEFT_OBJDUMP) + " -p " + PathOf(library)));
  Names names;
  std::string word;
  while (words >> word) {
    if (word == "NEEDED" && words >> word) names.insert(word.substr(0, word.find(".so")));
  }
  return names;
}

TEST(NcclPlugins, ExportTheirTablesAndNothingElse) {
  EXPECT_EQ(ExportsOf("libnccl-tuner-weft.so"),
            (Names{"ncclTunerPlugin_v4", "ncclTunerPlugin_v5"}));
  EXPECT_EQ(ExportsOf("libnccl-profiler-weft.so"), (Names{"ncclProfiler_v4", "ncclProfiler_v5"}));
  EXPECT_EQ(ExportsOf("libweft-nccl-context.so"),
            (Names{"weft_nccl_context_get", "weft_nccl_context_set", "weft_nccl_profile_flush",
                   "weft_nccl_profile_flushes"}));
}

TEST(NcclPlugins, NeedTheLanguageAndEachOtherAlone) {
  const Names language = {"libstdc++",       "libm",    "libgcc_s", "libc",
                          "ld-linux-x86-64", "libasan", "libubsan", "libtsan"};
  for (const char* library :
       {"libnccl-tuner-weft.so", "libnccl-profiler-weft.so", "libweft-nccl-context.so"}) {
    Names needed = NeedsOf(library);
    EXPECT_FALSE(needed.empty()) << "the test no longer sees what " << library << " needs";
    EXPECT_EQ(needed.erase("libweft-nccl-context"),
              library == std::string("libnccl-profiler-weft.so") ? 1u : 0u);
    for (const std::string& name : needed)
      EXPECT_TRUE(language.contains(name)) << library << ": " << name;
  }
}

TEST(NcclPlugins, TheContextIsC99) {
  const std::string source = std::string(
      "printf '#include \"plugins/nccl/context.h\"\\n"
      "int main(void) { struct weft_nccl_context c; "
      "return weft_nccl_context_get(&c); }\\n' | ");
  OutputOf(source + WEFT_COMPILER +
           " -x c -std=c99 -pedantic -Wall -Wextra -Werror -fsyntax-only -I " WEFT_SOURCE_DIR " -");
}

}  // namespace
}  // namespace weft::testing
