// The grammar of WEFT_NCCL_TUNER.
#include "plugins/nccl/tuner_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "plugins/nccl/tuner_abi.h"
#include "tests/support/property.h"

namespace weft::testing {
namespace {

using nccl_plugin::Range;
using nccl_plugin::Rule;
using nccl_plugin::TunerConfig;

std::string Fault(const std::string& text) {
  TunerConfig config;
  std::string error;
  const bool ok = nccl_plugin::ParseTunerConfig(text, &config, &error);
  EXPECT_EQ(ok, error.empty());
  if (!ok) {
    EXPECT_TRUE(config.rules.empty() && !config.derived) << "a bad text has no opinion";
  }
  return error;
}

TunerConfig Parsed(const std::string& text) {
  TunerConfig config;
  std::string error;
  EXPECT_TRUE(nccl_plugin::ParseTunerConfig(text, &config, &error)) << error;
  return config;
}

constexpr std::size_t kNoEnd = static_cast<std::size_t>(-1);

TEST(TunerConfig, ReadsEveryWord) {
  const TunerConfig config = Parsed(
      "reduce ranks=4 nodes=1-2 bytes=1K-3M proto=simple channels=64 # a comment; off\n"
      "  broadcast\tnvlink bytes=2G- proto=ll;; channels=1 reduce broadcast\n\n default ");
  ASSERT_EQ(config.rules.size(), 3u);
  EXPECT_TRUE(config.derived);
  const Rule& a = config.rules[0];
  EXPECT_TRUE(a.reduce && !a.broadcast && !a.nvlink);
  EXPECT_EQ(std::pair(a.ranks.low, a.ranks.high), std::pair(std::size_t{4}, std::size_t{4}));
  EXPECT_EQ(std::pair(a.nodes.low, a.nodes.high), std::pair(std::size_t{1}, std::size_t{2}));
  EXPECT_EQ(std::pair(a.bytes.low, a.bytes.high),
            std::pair(std::size_t{1024}, std::size_t{3145728}));
  EXPECT_EQ(a.protocol, nccl_plugin::kSimple);
  EXPECT_EQ(a.channels, 64);
  const Rule& b = config.rules[1];
  EXPECT_TRUE(!b.reduce && b.broadcast && b.nvlink);
  EXPECT_EQ(std::pair(b.bytes.low, b.bytes.high), std::pair(std::size_t{2} << 30, kNoEnd));
  EXPECT_EQ(b.protocol, nccl_plugin::kLl);
  EXPECT_EQ(b.channels, 0);
  const Rule& c = config.rules[2];
  EXPECT_TRUE(c.reduce && c.broadcast);
  EXPECT_EQ(c.protocol, -1);
}

TEST(TunerConfig, EmptyIsTheDefaultAndOffIsNothing) {
  for (const char* text : {"", " ", "\n;\n", "# only a comment", "default"}) {
    EXPECT_TRUE(Parsed(text).derived) << text;
  }
  EXPECT_FALSE(Parsed("off").derived);
  EXPECT_FALSE(Parsed("channels=2").derived) << "rules alone are all there is";
}

TEST(TunerConfig, OneSentenceNamesWhatIsWrong) {
  const std::pair<const char*, const char*> kCases[] = {
      {"reduce", "neither 'proto=' nor 'channels='"},
      {"allreduce channels=1", "'allreduce'"},
      {"channels=0", "'channels=0'"},
      {"channels=65", "'channels=65'"},
      {"channels=", "'channels='"},
      {"channels=1 channels=1", "twice"},
      {"reduce reduce channels=1", "twice"},
      {"channels", "'channels'"},
      {"proto=LL", "'proto=LL'"},
      {"bytes=2-1 channels=1", "'bytes=2-1'"},
      {"bytes=-1 channels=1", "'bytes=-1'"},
      {"bytes=1-2-3 channels=1", "'bytes=1-2-3'"},
      {"bytes=1T channels=1", "'bytes=1T'"},
      {"bytes=18446744073709551616 channels=1", "bytes=18446744073709551616"},
      {"bytes=99999999999999G channels=1", "bytes=99999999999999G"},
      {"ranks=1K channels=1", "'ranks=1K'"},
      {"ranks=+1 channels=1", "'ranks=+1'"},
      {"nvlink=1 channels=1", "'nvlink=1'"},
      {"off; default", "'off' does not stand alone"},
      {"off channels=1", "'off'"},
  };
  for (const auto& [text, fault] : kCases) {
    EXPECT_THAT(Fault(text), ::testing::HasSubstr(fault)) << text;
  }
  std::string many;
  for (int i = 0; i < 64; ++i) many += "channels=1;";
  EXPECT_EQ(Fault(many), "");
  EXPECT_THAT(Fault(many + "channels=1"), ::testing::HasSubstr("64 rules"));
  EXPECT_EQ(Fault(std::string(64 << 10, ' ')), "");
  EXPECT_THAT(Fault(std::string((64 << 10) + 1, ' ')), ::testing::HasSubstr("64 KiB"));
}

std::string Show(const Range& range, const char* key) {
  std::string text = std::string(" ") + key + "=" + std::to_string(range.low);
  if (range.high == range.low) return text;
  return text + "-" + (range.high == kNoEnd ? "" : std::to_string(range.high));
}

// What is written down is what is read.
TEST(TunerConfig, RulesComeBackAsTheyWere) {
  HoldsInCases(300, [] {
    const auto any_range = [] {
      const auto low = *rc::gen::arbitrary<std::size_t>();
      const std::size_t high = *rc::gen::element(low, kNoEnd, low + (kNoEnd - low) / 3);
      return Range{low, high};
    };
    Rule rule;
    rule.reduce = *rc::gen::arbitrary<bool>();
    rule.broadcast = !rule.reduce || *rc::gen::arbitrary<bool>();
    rule.nvlink = *rc::gen::arbitrary<bool>();
    rule.ranks = any_range();
    rule.nodes = any_range();
    rule.bytes = any_range();
    rule.channels = *rc::gen::inRange(1, 65);
    rule.protocol = *rc::gen::inRange(-1, 3);
    std::vector<std::string> words = {Show(rule.ranks, "ranks"), Show(rule.nodes, "nodes"),
                                      Show(rule.bytes, "bytes"),
                                      " channels=" + std::to_string(rule.channels)};
    if (rule.reduce) words.push_back(" reduce");
    if (rule.broadcast) words.push_back(" broadcast");
    if (rule.nvlink) words.push_back(" nvlink");
    const char* const kNames[] = {"ll", "ll128", "simple"};
    if (rule.protocol >= 0) words.push_back(std::string(" proto=") + kNames[rule.protocol]);
    std::string text;
    for (std::size_t left = words.size(); left > 0; --left) {  // in any order
      const std::size_t at = *rc::gen::inRange<std::size_t>(0, left);
      text += words[at];
      std::swap(words[at], words[left - 1]);
    }
    const TunerConfig config = Parsed(text);
    RC_ASSERT(config.rules.size() == 1u);
    const Rule& read = config.rules[0];
    RC_ASSERT(read.reduce == rule.reduce && read.broadcast == rule.broadcast);
    RC_ASSERT(read.nvlink == rule.nvlink && read.channels == rule.channels);
    RC_ASSERT(read.protocol == rule.protocol);
    for (const auto& [a, b] : {std::pair(read.ranks, rule.ranks), std::pair(read.nodes, rule.nodes),
                               std::pair(read.bytes, rule.bytes)}) {
      RC_ASSERT(a.low == b.low && a.high == b.high);
    }
  });
}

// Any bytes, and texts of the grammar's own pieces, are either read or refused with a reason.
TEST(TunerConfig, NoTextIsTooOdd) {
  HoldsInCases(3000, [] {
    std::string text;
    if (*rc::gen::arbitrary<bool>()) {
      text = *rc::gen::arbitrary<std::string>();
    } else {
      const int pieces = *rc::gen::inRange(0, 12);
      for (int i = 0; i < pieces; ++i) {
        text += *rc::gen::element<std::string>(
            "reduce", "broadcast", "bytes=", "ranks=", "proto=", "channels=", "1", "64K", "-", ";",
            "\n", " ", "=", "ll", "off", "default", "#", "@", "\0");
      }
    }
    TunerConfig config;
    std::string error;
    const bool ok = nccl_plugin::ParseTunerConfig(text, &config, &error);
    RC_ASSERT(ok == error.empty());
    if (!ok) RC_ASSERT(config.rules.empty() && !config.derived);
    for (const Rule& rule : config.rules) {
      RC_ASSERT(rule.reduce || rule.broadcast);
      RC_ASSERT(rule.channels >= 0 && rule.channels <= 64);
      RC_ASSERT(rule.protocol >= -1 && rule.protocol <= 2);
      RC_ASSERT(rule.protocol >= 0 || rule.channels > 0);
      RC_ASSERT(rule.bytes.low <= rule.bytes.high);
    }
  });
}

TEST(TunerConfig, FilesHoldTheSameTextAndFaultsNameThem) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("weft-tuner-" + std::to_string(::getpid()) + ".conf");
  TunerConfig config;
  std::string error;
  std::ofstream(path) << "# ours\nreduce channels=1\ndefault\n";
  EXPECT_TRUE(nccl_plugin::ReadTunerConfig("@" + path, &config, &error)) << error;
  EXPECT_EQ(config.rules.size(), 1u);
  EXPECT_TRUE(config.derived);
  std::ofstream(path) << std::string((64 << 10) + 1, ' ');
  EXPECT_FALSE(nccl_plugin::ReadTunerConfig("@" + path, &config, &error));
  EXPECT_FALSE(config.derived);
  std::filesystem::remove(path);
  EXPECT_FALSE(nccl_plugin::ReadTunerConfig("@" + path, &config, &error));
  EXPECT_THAT(error, ::testing::HasSubstr(path));
  EXPECT_TRUE(nccl_plugin::ReadTunerConfig("reduce channels=1", &config, &error));
}

}  // namespace
}  // namespace weft::testing
