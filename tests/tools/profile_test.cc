// Drives `weft profile` and `weft plan --profile` as processes; asserts structure, never times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/tools/process.h"
#include "tests/tools/small_model.h"
#include "weft/cost_profile.h"
#include "weft/version.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Finished Weft(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {WEFT_TOOL};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return RunProgram(all);
}

class Profile : public ::testing::Test {
 protected:
  Finished Measure(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"profile", "--repetitions", "3", "--sizes", "64,4096"};
    all.insert(all.end(), more.begin(), more.end());
    return Weft(all);
  }
  void Refused(const std::vector<std::string>& arguments, const std::string& text) {
    const Finished run = Weft(arguments);
    EXPECT_EQ(run.exit_code, 2) << text;
    EXPECT_EQ(run.out, "") << text;
    EXPECT_THAT(run.err, HasSubstr(text));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  CostProfile Written() {
    const auto profile = ReadCostProfile(out_);
    EXPECT_EQ(profile.status(), absl::OkStatus());
    return profile.value_or(CostProfile{});
  }
  // What was measured, edited.
  template <typename Edit>
  void Rewrite(Edit edit) {
    CostProfile profile = Written();
    edit(profile);
    WriteAll(out_, CostProfileToJson(profile));
  }

  const TemporaryFolder folder_;
  const std::string out_ = folder_ / "profile.json";
};

TEST_F(Profile, OfOneRankHasKernelsAlone) {
  const Finished run = Measure({"--shapes", "8x16,16x8,5x5", "--batches", "1,2", "--dtype", "bf16",
                                "--iterations", "3", "--segments", "none", "--out", out_});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("newton_schulz   5 x 5  bf16   plain 3"),
                             HasSubstr("row_norm       8 x 16  f32    -"),
                             HasSubstr("written to " + out_), Not(HasSubstr("collective"))));
  const CostProfile profile = Written();
  EXPECT_EQ(profile.compute.size(), 8u);
  EXPECT_TRUE(profile.collectives.empty());
  EXPECT_EQ(profile.fingerprint.weft, std::string(Version()));
  EXPECT_EQ(profile.fingerprint.transport, "local");
}

TEST_F(Profile, OfAModelMeasuresWhatTakesMuon) {
  const std::string model = folder_ / "model.safetensors";
  Store(model, SmallModel(1));
  const Finished run = Measure({model, "--adamw", "wte", "--batches", "1", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto profile = ParseCostProfile(run.out);
  ASSERT_EQ(profile.status(), absl::OkStatus());
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const ComputeSample& sample : profile->compute) {
    shapes.emplace(sample.shape.rows, sample.shape.cols);
  }
  // "frozen", too: nothing says here that it has no gradient.
  EXPECT_EQ(shapes, (decltype(shapes){{3, 4}, {8, 8}, {7, 12}, {1, 9}, {6, 10}, {5, 6}, {4, 6}}));
}

TEST_F(Profile, OfRanksHasEveryCollective) {
  for (const char* transport : {"local", "gloo"}) {
    const Finished run =
        Measure({"--shapes", "8x8", "--batches", "1", "--nodes", "2", "--ranks-per-node", "2",
                 "--transport", transport, "--out", out_});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, AllOf(ContainsRegex("all_reduce +world +4 "),
                               ContainsRegex("scatter +inter +2 "), HasSubstr(transport)));
    const CostProfile profile = Written();
    EXPECT_EQ(profile.collectives.size(), 21u);
    EXPECT_EQ(profile.fingerprint.transport, transport);
    EXPECT_EQ(profile.fingerprint.topology.grid, (ProcessGrid{2, 2}));
  }
}

TEST_F(Profile, RefusesBadInput) {
  Refused({"profile"}, "give MODEL or --shapes");
  Refused({"profile", "--shapes", "8"}, "--shapes \"8\" is no list of shapes");
  Refused({"profile", "--shapes", "8x0"}, "--shapes \"8x0\"");
  Refused({"profile", "--shapes", "8x8,"}, "--shapes \"8x8,\"");
  Refused({"profile", "--shapes", "8x8", "--batches", "1,,2"}, "--batches \"1,,2\"");
  Refused({"profile", "--shapes", "8x8", "--batches", "99999999999"}, "1 to 1024");
  Refused({"profile", "--shapes", "8x8", "--sizes", "-4"}, "--sizes");
  Refused({"profile", "--shapes", "8x8", "--sizes", "6"}, "payload of 6 bytes");
  Refused({"profile", "--shapes", "8x8", "--sizes", "8", "--nodes", "2"}, "two different sizes");
  Refused({"profile", "--shapes", "8x8", "--longest", "0"}, "--longest must be a positive");
  Refused({"profile", "--shapes", "1000000x1000000"}, "of memory, the machine has");
  Refused({"profile", "--shapes", "8x8", "--out", folder_ / "none/p.json"}, "none/p.json");
  const std::string model = folder_ / "shapes.json";
  WriteAll(model, R"({"matrices": [{"name": "w", "shape": [8, 8]}]})");
  Refused({"profile", model, "--out", model}, "is the same file as MODEL");
}

TEST_F(Profile, PlansWithWhatIsMeasured) {
  const std::string model = folder_ / "shapes.json";
  WriteAll(model,
           R"({"matrices": [{"name": "large", "shape": [16, 32]},
                            {"name": "small.{}", "shape": [8, 16], "count": 4}]})");
  ASSERT_EQ(Measure({model, "--batches", "1", "--nodes", "2", "--out", out_}).exit_code, 0);
  // As if two small ones took as long as the large one.
  Rewrite([](CostProfile& profile) {
    for (ComputeSample& sample : profile.compute) sample.seconds = sample.shape.rows == 16 ? 4 : 2;
  });
  const auto owners = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"plan", model, "--nodes", "2", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    std::vector<int> found;
    const Finished run = Weft(all);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    if (run.exit_code != 0) return found;
    const auto printed = nlohmann::json::parse(run.out);
    for (const auto& matrix : printed.at("matrices")) {
      found.push_back(matrix.at("owner").get<int>());
    }
    return found;
  };
  const auto beside = [](const std::vector<int>& found) {
    return std::count(found.begin(), found.end(), found.front()) - 1;
  };
  EXPECT_EQ(beside(owners({})), 0);
  EXPECT_EQ(beside(owners({"--profile", out_})), 1);

  const std::vector<std::string> plan = {"plan", model, "--nodes", "2"};
  EXPECT_THAT(Weft(plan).out, HasSubstr("costs: analytic model (no profile); shapes: 2 analytic"));
  EXPECT_THAT(Weft({"plan", model, "--nodes", "2", "--profile", out_}).out,
              AllOf(ContainsRegex("costs: measured .*; shapes: 2 measured\n"),
                    HasSubstr("largest over mean time of owners 1.00")));
}

TEST_F(Profile, ThatDoesNotFitIsRefusedOrUsedOnRequest) {
  const std::string model = folder_ / "shapes.json";
  WriteAll(model, R"({"matrices": [{"name": "w", "shape": [8, 8]}]})");
  ASSERT_EQ(Measure({model, "--batches", "1", "--out", out_}).exit_code, 0);
  const std::string foreign = "is foreign: the number of nodes was '1' and is '2' here";
  Refused({"plan", model, "--nodes", "2", "--profile", out_}, foreign);
  const Finished used = Weft({"plan", model, "--nodes", "2", "--profile", out_, "--any-profile"});
  EXPECT_EQ(used.exit_code, 0);
  EXPECT_THAT(used.out,
              AllOf(HasSubstr("costs: measured"), HasSubstr("warning: "), HasSubstr(foreign)));
  const Finished json =
      Weft({"plan", model, "--nodes", "2", "--profile", out_, "--any-profile", "--json"});
  EXPECT_EQ(json.exit_code, 0);
  EXPECT_THAT(json.err, AllOf(HasSubstr("weft: warning: "), HasSubstr(foreign)));

  Rewrite([](CostProfile& profile) { profile.fingerprint.weft = "0.0.1"; });
  Refused({"plan", model, "--profile", out_}, "is stale: Weft's version was '0.0.1' and is '");
  WriteAll(out_, "{}");
  Refused({"plan", model, "--profile", out_}, out_ + ": profile: 'format' is missing");
  Refused({"plan", model, "--profile", folder_ / "none.json"}, "none.json");
}

}  // namespace
}  // namespace weft::testing
