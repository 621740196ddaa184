// The trace that people open in Perfetto.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/support/costs.h"
#include "tests/support/model.h"
#include "tests/support/world.h"

namespace weft {
namespace {

using nlohmann::json;

json TraceOf(const ProcessGrid& grid, int steps, const std::string& path,
             const PlanLimits& limits = {}, const Link& link = {}) {
  testing::RunWorld({.grid = grid, .intra = link, .inter = link}, [&](testing::Rank rank) {
    testing::RankModel model({{6, 4}, {4, 6}, {5, 5}, {3, 8}}, Layout::kReplicated,
                             GradientKind::kLocal, rank.rank, grid.size(), 3);
    RuntimeOptions options = testing::OptionsFor(grid);
    options.trace = true;
    options.limits = limits;
    auto runtime = *Runtime::Create(options, rank.device, rank.transport);
    for (std::size_t m = 0; m < model.size(); ++m) {
      ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, MuonOptions{})).ok());
    }
    ASSERT_TRUE(runtime->Commit().ok());
    for (int step = 0; step < steps; ++step) {
      const Nanos begin = rank.device.clock().Now();
      for (int m = 3; m >= 0; --m) {
        const std::vector<float> gradient = model.Gradient(m, step);
        ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
      }
      runtime->AddTraceSpan("backward \"quoted\"", begin, rank.device.clock().Now());
      ASSERT_TRUE(runtime->Step().ok());
    }
    const absl::Status written = runtime->WriteTrace(path);
    ASSERT_TRUE(written.ok()) << written;
  });
  std::ifstream file(path);
  return json::parse(file);
}

std::string PathFor(const std::string& name) {
  return std::filesystem::temp_directory_path() /
         ("weft-" + name + "-" + std::to_string(::getpid()) + ".json");
}

class TraceFileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    path_ = PathFor("trace");
    trace_ = new json(TraceOf({2, 2}, 3, path_));
  }
  static void TearDownTestSuite() {
    delete trace_;
    std::filesystem::remove(path_);
  }
  static std::vector<json> Events(const std::string& phase) {
    std::vector<json> events;
    for (const json& event : (*trace_)["traceEvents"]) {
      if (event["ph"] == phase) events.push_back(event);
    }
    return events;
  }

  static inline std::string path_;
  static inline json* trace_ = nullptr;
};

TEST_F(TraceFileTest, HasAProcessPerRankAndAThreadPerLane) {
  std::map<int, std::set<std::string>> threads;
  std::set<std::string> processes;
  for (const json& event : Events("M")) {
    if (event["name"] == "process_name") processes.insert(event["args"]["name"]);
    if (event["name"] == "thread_name") threads[event["pid"]].insert(event["args"]["name"]);
  }
  EXPECT_EQ(processes, (std::set<std::string>{"rank 0 (node 0)", "rank 1 (node 0)",
                                              "rank 2 (node 1)", "rank 3 (node 1)"}));
  ASSERT_EQ(threads.size(), 4u);
  for (const auto& [rank, names] : threads) {
    EXPECT_EQ(names, (std::set<std::string>{"compute", "intra", "inter", "trainer"}));
  }
}

// The ranks of one process have one clock, which the trace counts from one moment of.
TEST_F(TraceFileTest, StatesItsOriginOnEveryRanksClock) {
  std::map<int, std::int64_t> origins;
  for (const json& event : Events("M")) {
    if (event["name"] != "weft_origin") continue;
    EXPECT_TRUE(origins.emplace(event["pid"], event["args"]["monotonic_ns"]).second);
  }
  ASSERT_EQ(origins.size(), 4u);
  for (const auto& [rank, origin] : origins) {
    EXPECT_GT(origin, 0);
    EXPECT_LT(origin, Clock::Steady().Now()) << "rank " << rank;
  }
}

TEST_F(TraceFileTest, SlicesOfALaneDoNotOverlapAndTimeStartsAtZero) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  double first = 1e18;
  for (const json& event : Events("X")) {
    const double begin = event["ts"], duration = event["dur"];
    EXPECT_GE(duration, 0);
    lanes[{event["pid"], event["tid"]}].emplace_back(begin, begin + duration);
    first = std::min(first, begin);
  }
  EXPECT_GE(first, 0);
  EXPECT_EQ(lanes.size(), 16u);
  for (auto& [lane, spans] : lanes) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i) {
      EXPECT_GE(spans[i].first, spans[i - 1].second - 0.002) << "rank " << lane.first;
    }
  }
}

TEST_F(TraceFileTest, EveryArrowHasBothEndsAndPointsForward) {
  std::map<std::string, json> starts, ends;
  for (const json& event : Events("s")) EXPECT_TRUE(starts.emplace(event["id"], event).second);
  for (const json& event : Events("f")) EXPECT_TRUE(ends.emplace(event["id"], event).second);
  ASSERT_EQ(starts.size(), ends.size());
  ASSERT_GT(starts.size(), 0u);
  for (const auto& [id, start] : starts) {
    ASSERT_TRUE(ends.contains(id));
    EXPECT_EQ(start["pid"], ends[id]["pid"]);
    EXPECT_NE(start["tid"], ends[id]["tid"]) << "an event edge crosses lanes";
    EXPECT_LE(start["ts"].get<double>(), ends[id]["ts"].get<double>() + 0.002);
  }
}

TEST_F(TraceFileTest, EveryJobHasOneTrack) {
  std::map<std::pair<int, std::string>, std::string> tracks;
  for (const json& event : Events("b")) {
    tracks[{event["pid"], event["id2"]["local"]}] = event["name"];
  }
  EXPECT_EQ(tracks.size(), 4u * 4u * 3u) << "ranks x matrices x steps";
  EXPECT_EQ(Events("e").size(), tracks.size());
  EXPECT_GT(Events("n").size(), tracks.size()) << "stages";
}

// What runs as one lies in one span, so that it can be drawn, and is busy time of its lane once.
TEST(TraceFile, PairsAreNestedAndCountOnce) {
  const std::string path = PathFor("pairs");
  Topology topology;
  topology.grid = {1, 2};
  topology.intra.latency_us = 2000;
  testing::RunWorld({.grid = topology.grid, .intra = topology.intra}, [&](testing::Rank rank) {
    testing::RankModel model({{6, 4}, {4, 6}, {6, 4}, {4, 6}}, Layout::kReplicated,
                             GradientKind::kLocal, rank.rank, 2, 3);
    RuntimeOptions options = testing::OptionsFor(topology.grid);
    options.trace = true;
    options.limits.bucket_bytes = 0;
    options.ownership.owners = {0, 1, 0, 1};
    options.costs = testing::CostsWithPairs(topology);
    auto runtime = *Runtime::Create(options, rank.device, rank.transport);
    for (std::size_t m = 0; m < model.size(); ++m) {
      ASSERT_TRUE(runtime->AddMatrix(model.Spec(m, MuonOptions{})).ok());
    }
    ASSERT_TRUE(runtime->Commit().ok());
    const Nanos begin = rank.device.clock().Now();
    for (int m = 3; m >= 0; --m) {
      const std::vector<float> gradient = model.Gradient(m, 0);
      ASSERT_TRUE(runtime->Submit({.matrix = m, .gradient = gradient.data()}).ok());
    }
    ASSERT_TRUE(runtime->Step().ok());
    ASSERT_TRUE(runtime->WaitForStep().ok());
    const double wall = 1e-9 * static_cast<double>(rank.device.clock().Now() - begin);
    const double busy = runtime->Metrics()->lane_seconds[static_cast<int>(Lane::kIntra)];
    // Two pairs each way and the verdict, which goes there and back, where links are emulated.
    EXPECT_GE(busy, rank.transport.kind() == "local" ? 6 * 2e-3 : 1e-9);
    EXPECT_LE(busy, wall);
    ASSERT_TRUE(runtime->WriteTrace(path).ok());
  });
  std::ifstream file(path);
  const json trace = json::parse(file);
  std::filesystem::remove(path);
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;  // begin, -end
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], duration = event["dur"];
    lanes[{event["pid"], event["tid"]}].emplace_back(begin, -(begin + duration));
  }
  int nested = 0;
  for (auto& [lane, spans] : lanes) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i) {
      const auto [begin, end] = std::pair(spans[i - 1].first, -spans[i - 1].second);
      const bool inside = -spans[i].second <= end + 0.002;
      EXPECT_TRUE(inside || spans[i].first >= end - 0.002) << begin << " to " << end;
      nested += inside;
    }
  }
  EXPECT_EQ(nested, 2 * 4) << "on each rank two pairs each way";
}

// Pairs of an intra and an inter collective that were under way on one rank at once.
int CollectivesAtOnce(int in_flight) {
  const std::string path = PathFor("limits");
  PlanLimits limits;
  limits.collectives_in_flight = in_flight;
  limits.bucket_bytes = 0;
  const json trace = TraceOf({2, 2}, 4, path, limits, {.latency_us = 1000});
  std::filesystem::remove(path);
  std::map<std::pair<int, int>, std::string> names;  // of threads
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") {
      names[{event["pid"], event["tid"]}] = event["args"]["name"];
    }
  }
  struct Span {
    int rank;
    double begin, end;
  };
  std::map<std::string, std::vector<Span>> spans;  // by lane
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], duration = event["dur"];
    spans[names[{event["pid"], event["tid"]}]].push_back({event["pid"], begin, begin + duration});
  }
  EXPECT_FALSE(spans["intra"].empty() || spans["inter"].empty());
  int at_once = 0;
  for (const Span& a : spans["intra"]) {
    for (const Span& b : spans["inter"]) {
      // Times are rounded to nanoseconds.
      const double common = std::min(a.end, b.end) - std::max(a.begin, b.begin);
      at_once += a.rank == b.rank && common > 0.002;
    }
  }
  return at_once;
}

TEST(TraceFile, ARankHasNoMoreCollectivesUnderWayThanItsLimit) {
  EXPECT_EQ(CollectivesAtOnce(1), 0);
  EXPECT_GT(CollectivesAtOnce(2), 0);
}

TEST(TraceFile, AnUnwritablePathIsAnErrorOnEveryRank) {
  testing::RunWorld({.grid = {1, 2}}, [&](testing::Rank rank) {
    testing::RankModel model({{2, 2}}, Layout::kReplicated, GradientKind::kLocal, rank.rank, 2, 3);
    RuntimeOptions options = testing::OptionsFor({1, 2});
    options.trace = true;
    auto runtime = *Runtime::Create(options, rank.device, rank.transport);
    ASSERT_TRUE(runtime->AddMatrix(model.Spec(0, MuonOptions{})).ok());
    ASSERT_TRUE(runtime->Commit().ok());
    EXPECT_FALSE(runtime->WriteTrace("/no/such/directory/trace.json").ok());
  });
}

}  // namespace
}  // namespace weft
