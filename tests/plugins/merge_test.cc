// scripts/merge-traces lays what the profiler wrote over Weft's own trace, in one time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "tests/plugins/profile_script.h"
#include "tests/support/model.h"
#include "tests/support/world.h"

namespace weft::testing {
namespace {

using nlohmann::json;

std::string Merge(const std::string& arguments) {
  return "python3 " WEFT_SOURCE_DIR "/scripts/merge-traces " + arguments;
}

// The output of a merge that must be refused.
std::string Refused(const std::string& arguments) { return OutputOf("! " + Merge(arguments)); }

// Two ranks, each with a span of the trainer's during which NCCL runs one collective for it.
void RunBoth(const std::string& trace) {
  const ProcessGrid grid = {1, 2};
  const PluginLibrary library("profiler", "weft");
  RunWorld({.grid = grid}, [&](Rank rank) {
    RankModel model({{6, 4}, {4, 6}}, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 3);
    RuntimeOptions options = OptionsFor(grid);
    options.trace = true;
    auto runtime = *Runtime::Create(options, rank.device, rank.transport);
    for (std::size_t m = 0; m < model.size(); ++m) {
      ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, MuonOptions{})).ok());
    }
    ASSERT_TRUE(runtime->Commit().ok());
    for (int m : {1, 0}) {
      const std::vector<float> gradient = model.Gradient(m, 0);
      ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
    }
    ASSERT_TRUE(runtime->Step().ok());
    const Nanos begin = rank.device.clock().Now();
    {
      const Working working(0, 3, 1, "blk.0", rank.rank);
      // In NCCL's numbering of the communicator the ranks are the other way round.
      Script comm(library, {.id = 4, .rank = 1 - rank.rank});
      comm.Whole({.channels = 1});
    }
    runtime->AddTraceSpan("nccl ran", begin, rank.device.clock().Now());
    ASSERT_TRUE(runtime->WriteTrace(trace).ok());
  });
}

class MergeTest : public ::testing::Test {
 protected:
  static std::string Quoted(const std::vector<std::string>& files) {
    std::string text;
    for (const std::string& file : files) text += " " + file;
    return text;
  }
  ProfileFolder folder_;
};

TEST_F(MergeTest, WhatRanDuringASpanLiesInIt) {
  const std::string trace = folder_.path() + "/trace.json", out = folder_.path() + "/out.json";
  RunBoth(trace);
  EXPECT_EQ(folder_.Files().size(), 3u) << "two profiles and the trace";
  OutputOf(Merge("--out " + out + Quoted(folder_.Files())));
  const Profile merged(out);
  std::map<int, std::pair<double, double>> spans;  // by rank
  for (const json& span : merged.Events("X", "nccl ran")) {
    const double begin = span["ts"];
    spans[span["pid"]] = {begin, begin + span["dur"].get<double>()};
  }
  ASSERT_EQ(spans.size(), 2u);
  std::map<int, int> seen;
  for (const json& event : merged.document()["traceEvents"]) {
    if (!event.contains("ts") || event["tid"].get<int>() < 1000) continue;
    const auto [begin, end] = spans.at(event["pid"]);
    EXPECT_GE(event["ts"].get<double>(), begin - 0.002) << event;
    EXPECT_LE(event["ts"].get<double>(), end + 0.002) << event;
    ++seen[event["pid"]];
  }
  EXPECT_EQ(seen, (std::map<int, int>{{0, 6}, {1, 6}})) << "group, call, launch, kernel, b and e";
  std::map<int, std::string> names;
  for (const json& event : merged.Events("M", "process_name")) {
    EXPECT_TRUE(names.emplace(event["pid"], event["args"]["name"]).second) << "a rank named twice";
  }
  EXPECT_EQ(names[1], "rank 1 (node 0)");
  EXPECT_EQ(merged.document()["otherData"]["profiles"].size(), 2u);
}

TEST_F(MergeTest, ProfilesAloneAreJoinedAsTheyAre) {
  const PluginLibrary library("profiler", "weft");
  for (int rank : {0, 1}) {
    Script comm(library, {.rank = rank});
    comm.Whole();
  }
  std::vector<double> times;
  for (const std::string& file : folder_.Files()) {
    for (const json& event : Profile(file).Events("X")) times.push_back(event["ts"]);
  }
  const std::string out = folder_.path() + "/out.json";
  OutputOf(Merge("--out " + out + Quoted(folder_.Files())));
  std::vector<double> merged;
  for (const json& event : Profile(out).Events("X")) merged.push_back(event["ts"]);
  EXPECT_EQ(merged, times);
  EXPECT_GT(times.size(), 0u);
}

TEST_F(MergeTest, WhatDoesNotFitIsRefusedWithTheReason) {
  const PluginLibrary library("profiler", "weft");
  {
    Script comm(library, {.rank = 3});
    comm.Whole();
  }
  const std::string profile = folder_.Files().at(0),
                    out = " --out " + folder_.path() + "/out.json ";
  const std::string bad = folder_.path() + "/bad.json", old = folder_.path() + "/old.json",
                    other = folder_.path() + "/other.json";
  std::ofstream(bad) << "{\"traceEvents\":[";
  std::ofstream(old) << R"({"traceEvents":[]})";
  std::ofstream(other)
      << R"({"traceEvents":[{"ph":"M","pid":0,"name":"weft_origin","args":{"monotonic_ns":5}}]})";
  using ::testing::HasSubstr;
  EXPECT_THAT(Refused(out + bad), HasSubstr("is not JSON"));
  EXPECT_THAT(Refused(out + folder_.path() + "/none.json"), HasSubstr("No such file"));
  EXPECT_THAT(Refused(out + old + " " + profile), HasSubstr("states no origins"));
  EXPECT_THAT(Refused(out + other + " " + profile), HasSubstr("is of rank 3"));
  EXPECT_THAT(Refused(out + other + " " + other), HasSubstr("more than one file"));
}

}  // namespace
}  // namespace weft::testing
