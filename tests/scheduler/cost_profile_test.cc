#include "weft/cost_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/profiles.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::SmallProfile;
using Json = nlohmann::json;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

RC_GTEST_PROP(CostProfile, ComesBackFromJsonToTheBit, ()) {
  const CostProfile profile = testing::DrawProfile();
  const absl::StatusOr<CostProfile> back = ParseCostProfile(CostProfileToJson(profile));
  RC_ASSERT(back.status() == absl::OkStatus());
  RC_ASSERT(*back == profile);
}

TEST(CostProfile, SaysWhatIsWrongWithAField) {
  const Json good = Json::parse(CostProfileToJson(SmallProfile()));
  ASSERT_TRUE(ParseCostProfile(good.dump()).ok());
  const std::vector<std::pair<std::function<void(Json&)>, std::string>> cases = {
      {[](Json& j) { j.erase("format"); }, "'format' is missing"},
      {[](Json& j) { j["format"] = 0; }, "'format' is 0, which is older than the 1"},
      {[](Json& j) { j["format"] = 2; }, "'format' is 2, which is newer"},
      {[](Json& j) { j["format"] = "1"; }, "'format' must be a whole number"},
      {[](Json& j) { j["format"] = 18446744073709551615u; }, "'format' must lie in"},
      {[](Json& j) { j.erase("compute"); }, "'compute' is missing"},
      {[](Json& j) { j["age"] = 3; }, "'age' is not a known field"},
      {[](Json& j) { j["measured_at"] = 3; }, "'measured_at' must be a text"},
      {[](Json& j) { j["fingerprint"] = 3; }, "'fingerprint' must be an object"},
      {[](Json& j) { j["fingerprint"].erase("device"); }, "'fingerprint.device' is missing"},
      {[](Json& j) { j["fingerprint"]["threads"] = 0; }, "'fingerprint.threads' must lie in 1 to"},
      {[](Json& j) { j["fingerprint"]["gpu"] = 0; }, "'fingerprint.gpu' is not a known field"},
      {[](Json& j) { j["fingerprint"]["topology"]["nodes"] = 0; },
       "'fingerprint': topology: 'nodes'"},
      {[](Json& j) { j["fingerprint"]["topology"] = {3}; }, "'fingerprint': topology: the text"},
      {[](Json& j) { j["compute"] = 3; }, "'compute' must be a list"},
      {[](Json& j) { j["compute"][1] = 3; }, "'compute[1]' must be an object"},
      {[](Json& j) { j["compute"][1]["kind"] = "fft"; },
       "'compute[1].kind' must be newton_schulz or row_norm, not 'fft'"},
      {[](Json& j) { j["compute"][1]["rows"] = 201; },
       "'compute[1].rows' must not exceed cols, but is 201 against 200"},
      {[](Json& j) { j["compute"][1]["rows"] = 0; }, "'compute[1].rows' must lie in 1 to"},
      {[](Json& j) { j["compute"][1]["dtype"] = "f8"; },
       "'compute[1].dtype' must be f32, bf16 or f16"},
      {[](Json& j) { j["compute"][1]["batch"] = 1.5; }, "'compute[1].batch' must be a whole"},
      {[](Json& j) { j["compute"][1]["seconds"] = 0; },
       "'compute[1].seconds' must be finite and p"},
      {[](Json& j) { j["compute"][1]["seconds"] = nullptr; }, "'compute[1].seconds' must be a num"},
      {[](Json& j) { j["compute"][1]["flops"] = -1; }, "'compute[1].flops' must be finite and"},
      {[](Json& j) { j["compute"][1]["spread"] = -1; }, "'compute[1].spread' must be finite and n"},
      {[](Json& j) { j["compute"][1]["batch"] = 1; }, "'compute[1]' is measured by an earlier"},
      {[](Json& j) { j["collectives"].push_back(j["collectives"][0]); }, "'collectives[1]' is mea"},
      {[](Json& j) { j["collectives"][0]["kind"] = "verdict"; },
       "'collectives[0].kind' must be all_reduce, reduce, broadcast, all_gather, reduce_scatter, "
       "gather or scatter, not 'verdict'"},
      {[](Json& j) { j["collectives"][0]["group"] = "rack"; },
       "'collectives[0].group' must be world, intra or inter, not 'rack'"},
      {[](Json& j) { j["collectives"][0]["ranks"] = 1; }, "'collectives[0].ranks' must lie in 2"},
      {[](Json& j) { j["collectives"][0]["latency_us"] = -1; }, "'collectives[0].latency_us'"},
      {[](Json& j) { j["collectives"][0]["samples"][1]["bytes"] = 4096; },
       "'collectives[0].samples' must have ascending sizes"},
      {[](Json& j) { j["collectives"][0]["samples"][1].erase("bytes"); },
       "'collectives[0].samples[1].bytes' is missing"},
  };
  for (const auto& [spoil, text] : cases) {
    Json bad = good;
    spoil(bad);
    const absl::Status status = ParseCostProfile(bad.dump()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Message(status), AllOf(::testing::StartsWith("profile: "), HasSubstr(text)));
  }
  EXPECT_THAT(Message(ParseCostProfile("{} {}").status()), HasSubstr("not JSON"));
  EXPECT_THAT(Message(ParseCostProfile("[]").status()), HasSubstr("must be a JSON object"));
  EXPECT_THAT(Message(ParseCostProfile(R"({"format": 1, "format": 1})").status()),
              HasSubstr("'format' appears twice"));
}

RC_GTEST_PROP(CostProfile, AnyBytesGiveAnAnswer, (std::string text)) {
  const absl::StatusOr<CostProfile> profile = ParseCostProfile(text);
  RC_ASSERT(profile.ok() || profile.status().code() == absl::StatusCode::kInvalidArgument);
}

TEST(CostProfile, FileErrorsNameTheFile) {
  EXPECT_EQ(ReadCostProfile("/nonexistent/p.json").status().code(), absl::StatusCode::kNotFound);
  const std::string path = ::testing::TempDir() + "weft_cost_profile_test.json";
  std::ofstream(path) << "{}";
  EXPECT_THAT(Message(ReadCostProfile(path).status()),
              AllOf(HasSubstr(path), HasSubstr("'format' is missing")));
  std::ofstream(path) << CostProfileToJson(SmallProfile());
  EXPECT_EQ(*ReadCostProfile(path), SmallProfile());
  std::remove(path.c_str());
}

TEST(CheckProfile, NamesTheFirstDifference) {
  const CostProfile profile = SmallProfile();
  EXPECT_EQ(CheckProfile(profile, profile.fingerprint), absl::OkStatus());
  const std::vector<std::pair<std::function<void(ProfileFingerprint&)>, std::string>> cases = {
      {[](auto& f) { f.weft = "0.2.0"; },
       "is stale: Weft's version was '0.1.0' and is '0.2.0' here"},
      {[](auto& f) { f.math_library = "oneDNN 3.2"; },
       "is stale: the math library was 'oneDNN 3.1.1' and is 'oneDNN 3.2' here"},
      {[](auto& f) { f.device_kind = "cuda"; },
       "is foreign: the kind of device was 'host' and is 'cuda' here"},
      {[](auto& f) { f.device = "Zen"; },
       "is foreign: the device was 'AMD EPYC, 2 CPUs' and is 'Zen' here"},
      {[](auto& f) { f.threads = 2; }, "foreign: the number of threads was '1' and is '2' here"},
      {[](auto& f) { f.transport = "gloo"; }, "foreign: the transport was 'local' and is 'gloo'"},
      {[](auto& f) { f.topology.grid.nodes = 3; }, "the number of nodes was '2' and is '3'"},
      {[](auto& f) { f.topology.grid.ranks_per_node = 3; }, "ranks per node was '2' and is '3'"},
      {[](auto& f) { f.topology.nics_per_node = 0; }, "NICs per node was '1' and is '0'"},
      {[](auto& f) { f.topology.intra.latency_us = 11; },
       "the intra link was '10 us and 12.5 GB/s' and is '11 us and 12.5 GB/s'"},
      {[](auto& f) { f.topology.inter.gigabytes_per_second = 4; },
       "the inter link was '20.25 us and 3 GB/s' and is '20.25 us and 4 GB/s'"},
      {[](auto& f) { f.topology.intra_class = LinkClass::kNvlink; },
       "the class of intra links was 'pcie' and is 'nvlink'"},
      {[](auto& f) { f.topology.root_complex_gigabytes_per_second = 16; },
       "the limit of root complexes was '1 with 0 GB/s' and is '1 with 16 GB/s'"},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    ProfileFingerprint other = profile.fingerprint;
    // What comes later in the list differs, too.
    for (std::size_t j = i; j < cases.size(); ++j) cases[j].first(other);
    const absl::Status status = CheckProfile(profile, other);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("measured at 2026-11-30T12:00:00Z"), HasSubstr(cases[i].second)));
  }
}

TEST(CheckProfile, LeavesOutWhatIsNotKnown) {
  const CostProfile profile = SmallProfile();
  ProfileFingerprint known;
  known.topology = profile.fingerprint.topology;
  EXPECT_EQ(CheckProfile(profile, known), absl::OkStatus());
  known.device = "Zen";
  EXPECT_FALSE(CheckProfile(profile, known).ok());
}

}  // namespace
}  // namespace weft
