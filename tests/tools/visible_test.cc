#include "tools/weft/visible.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace weft::tool {
namespace {

TEST(Visible, KeepsTextAndEscapesWhatATerminalObeys) {
  EXPECT_EQ(Visible("h.0.\"w\" \\ \u00e9 \u4e2d \U0001f600"),
            "h.0.\"w\" \\ \u00e9 \u4e2d \U0001f600");
  EXPECT_EQ(Visible("a\x1b[2J\tb\n\r\x7f"), "a\\u001b[2J\\u0009b\\u000a\\u000d\\u007f");
  EXPECT_EQ(Visible(std::string_view("a\0b", 3)), "a\\u0000b");
  EXPECT_EQ(Visible("\u009b31m"), "\\u009b31m") << "one character that begins a sequence";
  EXPECT_EQ(Visible("\u202eabc\u2066"), "\\u202eabc\\u2066") << "text in the other direction";
  EXPECT_EQ(Visible("a\x9b"
                    "b\xc3"),
            "a\\x9bb\\xc3");
  EXPECT_EQ(Visible("\xc0\x9b\xed\xa0\x80"), "\\xc0\\x9b\\xed\\xa0\\x80");
}

RC_GTEST_PROP(Visible, NothingHiddenIsLeftAndASecondTimeChangesNothing, (const std::string& text)) {
  const std::string visible = Visible(text);
  for (const char c : visible) RC_ASSERT(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  RC_ASSERT(Visible(visible) == visible);
}

}  // namespace
}  // namespace weft::tool
