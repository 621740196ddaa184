// What a tool is told of trainings: the laws of ranges, and that they tell of each op what the plan
// says. The environment names the tool (CMakeLists.txt).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "tests/house/tree.h"
#include "tests/nvtx/record.h"
#include "tests/nvtx/training.h"
#include "tests/support/commit.h"
#include "tests/support/model.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/world.h"
#include "weft/transport.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using What = NvtxEvent::What;

NvtxRecord& Record() {
  static NvtxRecord& record = [&]() -> NvtxRecord& {
    // The runtime has loaded it, or does so now.
    EXPECT_TRUE(base::ToolAttached()) << "NVTX_INJECTION64_PATH does not name " WEFT_NVTX_INJECTION;
    void* const library = dlopen(WEFT_NVTX_INJECTION, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) std::abort();
    return *reinterpret_cast<NvtxRecordFunction>(dlsym(library, kNvtxRecordFunction))();
  }();
  return record;
}

// What is told while one lives.
class Told {
 public:
  Told() : first_(Record().Events().size()) {}
  std::vector<NvtxEvent> events() const { return Record().Events(first_); }

 private:
  const std::size_t first_;
};

bool IsOp(const NvtxEvent& event) { return event.numbers.contains("op"); }

// Of the events of one thread, in order: the ranges, each with its parent's index or -1.
struct Nested {
  NvtxEvent event;
  int parent;
};
std::vector<Nested> NestedOn(const std::vector<NvtxEvent>& events, pid_t thread) {
  std::vector<Nested> ranges;
  std::vector<int> open;
  for (const NvtxEvent& event : events) {
    if (event.thread != thread) continue;
    if (event.what == What::kPush) {
      ranges.push_back({event, open.empty() ? -1 : open.back()});
      open.push_back(static_cast<int>(ranges.size()) - 1);
    } else if (event.what == What::kPop) {
      EXPECT_FALSE(open.empty()) << "a pop without a push";
      if (!open.empty()) open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty()) << ranges[open.back()].event.message << " is not popped";
  return ranges;
}

std::set<pid_t> ThreadsOf(const std::vector<NvtxEvent>& events) {
  std::set<pid_t> threads;
  for (const NvtxEvent& event : events) threads.insert(event.thread);
  return threads;
}

// The page that tells people.
const std::string& Page() {
  static const std::string page = Read(kRoot / "docs" / "nsight.md");
  return page;
}

std::vector<std::string> Quoted(const std::string& text) {
  const std::regex quoted("`([^`]+)`");
  std::vector<std::string> all;
  for (std::sregex_iterator i(text.begin(), text.end(), quoted), end; i != end; ++i) {
    all.push_back((*i)[1]);
  }
  return all;
}

// The category of each kind of op, by its name: the page's first table.
const std::map<std::string, std::string>& Categories() {
  static const std::map<std::string, std::string> categories = [] {
    std::map<std::string, std::string> all;
    std::istringstream table(Page().substr(Page().find("| category | kinds |")));
    std::string line;
    while (std::getline(table, line) && !line.empty()) {
      const std::vector<std::string> names = Quoted(line);
      for (std::size_t i = 1; i < names.size(); ++i) all[names[i]] = names[0];
    }
    return all;
  }();
  return categories;
}

// What the range of an op is to say, from the plan alone.
struct OpRange {
  std::int64_t step, op, bytes, root;
  std::string category, message, matrix, communicator, stage;

  friend bool operator==(const OpRange&, const OpRange&) = default;
  friend std::ostream& operator<<(std::ostream& out, const OpRange& range) {
    return out << range.category << " " << range.message << " of " << range.matrix << ", step "
               << range.step << ", op " << range.op << ", " << range.bytes << " bytes, root "
               << range.root << ", on " << range.communicator << ", towards " << range.stage;
  }
};

std::string CommunicatorOf(const Plan& plan, const Op& op, int rank) {
  const Group& group = plan.groups[op.group];
  const int part = group.PartOf(rank);
  const std::size_t members = group.parts[part].size();
  if (members < 2 || !IsCollective(op.kind)) return "none";
  if (static_cast<int>(members) == plan.topology.grid.size()) return "weft world";
  return absl::StrCat("weft ", group.PartName(part));
}

OpRange Expected(const Plan& plan, const Decision& issued, int rank) {
  const Op& op = plan.ops[issued.op];
  const Group& group = plan.groups[op.group];
  std::string matrix = "step";
  if (op.matrix >= 0) matrix = plan.matrices[op.matrix].name;
  if (op.set >= 0 && plan.sets[op.set].size() > 1) {
    absl::StrAppend(&matrix, " and ", plan.sets[op.set].size() - 1, " more");
  }
  return {.step = issued.step,
          .op = issued.op,
          .bytes = issued.bytes,
          .root = op.root < 0 ? -1 : group.parts[group.PartOf(rank)][op.root],
          .category = Categories().at(std::string(Name(op.kind))),
          .message = std::string(Name(op.kind)),
          .matrix = matrix,
          .communicator = CommunicatorOf(plan, op, rank),
          .stage = std::string(Name(op.stage))};
}

OpRange Decoded(const NvtxEvent& event) {
  return {.step = event.numbers.at("step"),
          .op = event.numbers.at("op"),
          .bytes = event.numbers.at("bytes"),
          .root = event.numbers.at("root"),
          .category = event.category,
          .message = event.message,
          .matrix = event.texts.at("matrix"),
          .communicator = event.texts.at("communicator"),
          .stage = event.texts.at("stage")};
}

class Attached : public ::testing::TestWithParam<Training> {};

INSTANTIATE_TEST_SUITE_P(Trainings, Attached, ::testing::ValuesIn(Trainings()),
                         [](const auto& training) { return std::string(training.param.name); });

TEST_P(Attached, RangesAreBalancedAndKnownAndAllInTheDomain) {
  const Told told;
  Train(GetParam());
  const std::vector<NvtxEvent> events = told.events();
  EXPECT_GT(events.size(), 100u);
  for (const pid_t thread : ThreadsOf(events)) NestedOn(events, thread);
  for (const NvtxEvent& event : events) EXPECT_EQ(event.domain, "weft");
  EXPECT_THAT(Record().faults, IsEmpty());
  EXPECT_THAT(Record().schemas, ElementsAre("weft op"));
  const std::vector<std::string> told_to_people = Quoted(Page());
  for (const NvtxEvent& event : events) {
    if (event.category != "plan" && event.category != "wait" && event.category != "watchdog")
      continue;
    if (event.message.rfind("weft ", 0) == 0) continue;  // a communicator
    EXPECT_THAT(told_to_people, Contains(event.message)) << "docs/nsight.md says nothing of it";
  }
}

// In the order in which they were issued, and nothing else on any thread.
TEST_P(Attached, EveryIssuedOpHasOneRangeThatSaysWhatItIs) {
  const Told told;
  const std::vector<TrainedRank> ranks = Train(GetParam());
  const std::vector<NvtxEvent> events = told.events();
  std::size_t expected_count = 0;
  for (int r = 0; r < GetParam().grid.size(); ++r) {
    std::vector<OpRange> expected, decoded;
    for (const Decision& decision : ranks[r].decisions) {
      if (decision.what != Decision::What::kIssued) continue;
      expected.push_back(Expected(ranks[r].plan, decision, r));
    }
    for (const NvtxEvent& event : events) {
      if (event.thread == ranks[r].thread && IsOp(event)) decoded.push_back(Decoded(event));
    }
    EXPECT_GT(expected.size(), static_cast<std::size_t>(kTrainedSteps * kTrainedLayers));
    EXPECT_EQ(decoded, expected) << "rank " << r;
    expected_count += expected.size();
  }
  EXPECT_EQ(static_cast<std::size_t>(std::count_if(events.begin(), events.end(), IsOp)),
            expected_count);
}

// Only what runs as one lies within another op.
TEST_P(Attached, TheFirstOfAPairHoldsTheSecond) {
  const Told told;
  const std::vector<TrainedRank> ranks = Train(GetParam());
  const std::vector<NvtxEvent> events = told.events();
  int pairs = 0;
  for (const TrainedRank& rank : ranks) {
    const std::vector<Nested> ranges = NestedOn(events, rank.thread);
    for (const Nested& range : ranges) {
      if (!IsOp(range.event)) continue;
      const std::int64_t op = range.event.numbers.at("op");
      const bool joined = op > 0 && rank.plan.ops[op - 1].with_next;
      const NvtxEvent* parent = range.parent < 0 ? nullptr : &ranges[range.parent].event;
      EXPECT_EQ(parent != nullptr && IsOp(*parent), joined);
      if (!joined || parent == nullptr) continue;
      EXPECT_EQ(parent->numbers.at("op"), op - 1);
      ++pairs;
    }
  }
  EXPECT_EQ(pairs > 0, GetParam().pairs);
}

// A caller's rule sees where it is called.
TEST_P(Attached, AnOpIsLaunchedInsideItsRange) {
  const Told told;
  std::atomic<int> calls = 0;
  TrainingHooks hooks;
  hooks.in_rule = [&](const RuleContext& context) {
    ++calls;
    std::vector<NvtxEvent> open;
    for (const NvtxEvent& event : told.events()) {
      if (event.thread != gettid()) continue;
      if (event.what == What::kPush) open.push_back(event);
      if (event.what == What::kPop) open.pop_back();
    }
    ASSERT_FALSE(open.empty());
    EXPECT_EQ(open.back().message, "custom");
    EXPECT_EQ(open.back().texts.at("matrix"), context.matrix);
    EXPECT_EQ(open.back().numbers.at("step"), context.step);
  };
  Train(GetParam(), hooks);
  EXPECT_GE(calls, kTrainedSteps);
}

TEST_P(Attached, AJobLastsFromItsSubmissionToItsDelivery) {
  const Told told;
  using Key = std::tuple<pid_t, std::string, std::int64_t>;  // rank, matrix, step
  // What has been told of each by now: 1 begun, 2 ended.
  const auto states = [&] {
    std::map<Key, int> known;
    std::map<std::uint64_t, Key> by_range;
    for (const NvtxEvent& event : told.events()) {
      if (event.what == What::kStart) {
        EXPECT_EQ(event.category, "job");
        const Key key{event.thread, event.message, event.numbers.at("")};
        by_range[event.range] = key;
        EXPECT_EQ(++known[key], 1) << event.message;
      } else if (event.what == What::kEnd) {
        EXPECT_EQ(++known[by_range.at(event.range)], 2);
      }
    }
    return known;
  };
  TrainingHooks hooks;
  hooks.before_step = [&](const std::vector<Job>& jobs) {
    const auto known = states();
    for (const Job& job : jobs) {
      const auto found = known.find({gettid(), job.matrix(), job.step()});
      ASSERT_TRUE(found != known.end()) << job.matrix();
      // Where a rank has no work after the reduction of an owned matrix, that delivers.
      EXPECT_TRUE(found->second == 1 || job.Reached(Stage::kDelivered).value()) << job.matrix();
    }
  };
  hooks.delivered = [&](pid_t rank, int m, int step) {
    EXPECT_EQ(states().at({rank, TrainedMatrix(m), step}), 2) << TrainedMatrix(m);
  };
  Train(GetParam(), hooks);
  const auto known = states();
  EXPECT_EQ(known.size(),
            static_cast<std::size_t>(GetParam().grid.size() * kTrainedLayers * kTrainedSteps));
  for (const auto& [key, state] : known) EXPECT_EQ(state, 2) << std::get<1>(key);
}

// "commit(compare registrations, ...)": the first range of a rank and what it holds.
std::string Tree(const std::vector<Nested>& ranges, int root) {
  std::vector<std::string> children;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].parent == root) children.push_back(Tree(ranges, static_cast<int>(i)));
  }
  EXPECT_EQ(ranges[root].event.category, "plan") << ranges[root].event.message;
  const std::string& name = ranges[root].event.message;
  return children.empty() ? name : absl::StrCat(name, "(", absl::StrJoin(children, ", "), ")");
}

TEST_P(Attached, CommitNamesItsPartsAndEveryCommunicator) {
  const Told told;
  const std::vector<TrainedRank> ranks = Train(GetParam());
  const std::vector<NvtxEvent> events = told.events();
  for (int r = 0; r < GetParam().grid.size(); ++r) {
    const Plan& plan = ranks[r].plan;
    std::vector<std::string> communicators;
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      for (const Op& op : plan.ops) {
        if (op.group != static_cast<std::int32_t>(g) || plan.groups[g].PartOf(r) < 0) continue;
        const std::string name = CommunicatorOf(plan, op, r);
        if (name == "none" || name == "weft world") continue;
        communicators.push_back(name);
        break;
      }
    }
    const std::string connect =
        communicators.empty()
            ? "create communicators"
            : absl::StrCat("create communicators(", absl::StrJoin(communicators, ", "), ")");
    const std::string world = GetParam().grid.size() > 1 ? "weft world, " : "";
    const std::vector<Nested> ranges = NestedOn(events, ranks[r].thread);
    ASSERT_FALSE(ranges.empty());
    EXPECT_EQ(Tree(ranges, 0), absl::StrCat("commit(", world, "compare registrations, build plan, ",
                                            connect, ", prepare(warm up))"));
  }
}

TEST_P(Attached, WaitsAreNamedByWhatIsWaitedFor) {
  const Told told;
  const std::vector<TrainedRank> ranks = Train(GetParam());
  const std::vector<NvtxEvent> events = told.events();
  for (const TrainedRank& rank : ranks) {
    std::map<std::string, std::multiset<std::int64_t>> waits;
    for (const Nested& range : NestedOn(events, rank.thread)) {
      const bool nested = range.parent >= 0;
      if (range.event.category == "wait" && !nested) {
        waits[range.event.message].insert(range.event.numbers.at(""));
      }
    }
    std::multiset<std::int64_t> steps, layers;
    for (int step = 0; step < kTrainedSteps; ++step) {
      steps.insert(step);
      for (int part = 0; part < GetParam().parts(); ++part) {
        for (int layer = 0; layer < kTrainedLayers; ++layer) layers.insert(layer);
      }
    }
    EXPECT_EQ(waits["wait for layer"], layers);
    EXPECT_EQ(waits["parameter needed"], layers);
    steps.insert(kTrainedSteps - 1);  // the end of the runtime
    EXPECT_EQ(waits["wait for step"], steps);
  }
}

// Everything that a step says is known after the first.
TEST_P(Attached, AStepRegistersNoString) {
  std::optional<std::size_t> after_second;
  TrainingHooks hooks;
  hooks.after_step = [&](int rank, int step) {
    const std::lock_guard<std::mutex> lock(Record().mutex);
    // That rank 0 is through with it says that the others are through with the first.
    if (rank == 0 && step == 1) after_second = Record().strings.size();
  };
  Train(GetParam(), hooks);
  ASSERT_TRUE(after_second.has_value());
  EXPECT_EQ(Record().strings.size(), *after_second);
}

TEST_P(Attached, LanesAreNamed) {
  const std::size_t before = Record().threads.size();
  Train(GetParam());
  std::multiset<std::string> names;
  for (std::size_t i = before; i < Record().threads.size(); ++i) {
    const auto& [name, kept] = Record().threads[i];
    EXPECT_EQ(kept, name.substr(0, 15));
    names.insert(name);
  }
  for (const char* name : {"weft compute", "weft intra", "weft inter", "weft staging",
                           "weft control", "weft warm-up", "trainer"}) {
    EXPECT_EQ(names.count(name), static_cast<std::size_t>(GetParam().grid.size())) << name;
  }
}

TEST(AttachedFailure, IsARangeAndEndsEveryJob) {
  const Told told;
  const ProcessGrid grid{2, 2};
  RunWorld({.grid = grid}, [&](Rank rank) {
    RankModel model({{8, 6}, {6, 6}}, Layout::kReplicated, GradientKind::kLocal, rank.rank, 4, 3);
    auto runtime = Commit(OptionsFor(grid), rank, model);
    const std::vector<float> gradient = model.Gradient(0, 0);
    ASSERT_TRUE(runtime->Submit({.matrix = 0, .gradient = gradient.data()}).ok());
    if (rank.rank == 2) rank.transport.Abort(absl::AbortedError("of this test's own will"));
    (void)runtime->Step();
    EXPECT_FALSE(runtime->WaitForStep().ok());
  });
  std::multiset<std::int64_t> failed;
  int begun = 0, ended = 0;
  const std::vector<NvtxEvent> events = told.events();
  for (const pid_t thread : ThreadsOf(events)) NestedOn(events, thread);
  for (const NvtxEvent& event : events) {
    begun += event.what == What::kStart;
    ended += event.what == What::kEnd;
    if (event.message != "failure") continue;
    EXPECT_EQ(event.category, "watchdog");
    failed.insert(event.numbers.at(""));
  }
  EXPECT_THAT(failed, ElementsAre(0, 1, 2, 3));
  EXPECT_GE(begun, 4);
  EXPECT_EQ(begun, ended);
}

TEST(AttachedGloo, NamesTheThreadThatWatchesPeers) {
  const std::size_t before = Record().threads.size();
  {
    const TemporaryFolder store;
    const auto transport = CreateGlooTransport({.size = 1, .store = store / ""});
    ASSERT_TRUE(transport.ok()) << transport.status();
  }
  ASSERT_EQ(Record().threads.size(), before + 1);
  EXPECT_EQ(Record().threads.back(),
            std::pair(std::string("weft watchdog"), std::string("weft watchdog")));
}

}  // namespace
}  // namespace weft::testing
