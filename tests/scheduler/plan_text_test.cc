// Names, fingerprints and the printed plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/scheduler/requests.h"
#include "tests/support/topologies.h"
#include "weft/plan.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

Plan Example() {
  PlanMatrix sharded = Matrix("s", 4, 2, Layout::kSharded);
  absl::StatusOr<Plan> plan =
      BuildPlan(Request(Strategy::kOwner, 2, 2, {Matrix("a", 4, 2), Matrix("b", 4, 2), sharded}));
  EXPECT_EQ(plan.status(), absl::OkStatus());
  return *std::move(plan);
}

TEST(PlanText, StrategiesAndLayoutsParseBack) {
  for (Strategy strategy : {Strategy::kReplicated, Strategy::kGather, Strategy::kOwner,
                            Strategy::kNodeLocal, Strategy::kLayerwise}) {
    EXPECT_EQ(*ParseStrategy(Name(strategy)), strategy);
  }
  for (Layout layout :
       {Layout::kReplicated, Layout::kSharded, Layout::kOwned, Layout::kNodeSharded}) {
    EXPECT_EQ(*ParseLayout(Name(layout)), layout);
  }
  EXPECT_THAT(std::string(ParseStrategy("ownr").status().message()),
              ::testing::AllOf(HasSubstr("'ownr'"),
                               HasSubstr("replicated, gather, owner, node_local or layerwise")));
  EXPECT_THAT(std::string(ParseLayout("").status().message()),
              HasSubstr("replicated, sharded, owned or node_sharded"));
}

TEST(PlanText, NamesAreDistinct) {
  std::set<std::string> names;
  for (int kind = 0; kind <= static_cast<int>(OpKind::kUse); ++kind) {
    names.insert(std::string(Name(static_cast<OpKind>(kind))));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(OpKind::kUse) + 1);
  names.clear();
  for (int slot = 0; slot < kSlotCount; ++slot) {
    names.insert(std::string(Name(static_cast<Slot>(slot))));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kSlotCount));
  names.clear();
  for (int stage = 0; stage < kStageCount; ++stage) {
    names.insert(std::string(Name(static_cast<Stage>(stage))));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kStageCount));
}

TEST(PlanText, FingerprintSeesEveryField) {
  const std::vector<std::function<void(Plan&)>> changes = {
      [](Plan& p) { p.check_gradients = !p.check_gradients; },
      [](Plan& p) { p.limits.collectives_in_flight = 1; },
      [](Plan& p) { ++p.limits.buffers_in_turn; }, [](Plan& p) { ++p.limits.bucket_bytes; },
      [](Plan& p) { ++p.limits.inter_layers_ahead; },
      [](Plan& p) { ++p.limits.intra_layers_ahead; }, [](Plan& p) { ++p.limits.passes; },
      [](Plan& p) { p.limits.keep_through_backward = true; },
      [](Plan& p) { p.limits.reduce_each_pass = true; }, [](Plan& p) { ++p.ops[0].pass; },
      [](Plan& p) { ++p.limits.fetched_bytes; }, [](Plan& p) { ++p.matrices[0].layer; },
      [](Plan& p) { p.ops[0].form = CollectiveForm::kSplit; }, [](Plan& p) { ++p.ops[0].piece; },
      [](Plan& p) { ++p.ops[0].pieces; }, [](Plan& p) { p.ops[0].with_next = true; },
      [](Plan& p) { ++p.ops[0].use; }, [](Plan& p) { p.uses.push_back({}); },
      [](Plan& p) { ++p.limits.piece_bytes; }, [](Plan& p) { ++p.limits.buffer_bytes; },
      [](Plan& p) { ++p.buffers; }, [](Plan& p) { p.matrices[0].pass_through = true; },
      [](Plan& p) { ++p.matrices[0].buffers[1]; }, [](Plan& p) { p.matrices[0].bucket = 0; },
      [](Plan& p) { p.matrices[0].batch = 0; },
      [](Plan& p) {
        p.sets.push_back({0, 1});
      },
      [](Plan& p) { p.ops[0].set = 0; }, [](Plan& p) { p.strategy = Strategy::kGather; },
      [](Plan& p) { p.matrices[0].name = "c"; }, [](Plan& p) { ++p.matrices[0].rows; },
      [](Plan& p) { ++p.matrices[0].cols; }, [](Plan& p) { p.matrices[0].dtype = DType::kBF16; },
      [](Plan& p) { p.matrices[0].layout = Layout::kSharded; },
      [](Plan& p) { p.matrices[0].gradient = GradientKind::kReduced; },
      [](Plan& p) { p.matrices[0].rule = RuleKind::kCustom; },
      [](Plan& p) { ++p.matrices[0].state_bytes_per_element; },
      [](Plan& p) { ++p.matrices[0].ns_run; }, [](Plan& p) { p.matrices[0].flops += 1; },
      [](Plan& p) { ++p.matrices[2].shard_rows[1]; }, [](Plan& p) { p.matrices[0].owner = 3; },
      [](Plan& p) { p.matrices[0].path += "."; }, [](Plan& p) { p.matrices[0].fallback = "x"; },
      [](Plan& p) { ++p.matrices[0].peak_bytes; },
      [](Plan& p) { ++p.matrices[0].alternative_peak_bytes; },
      [](Plan& p) { p.matrices.pop_back(); }, [](Plan& p) { p.groups[0].name = "other"; },
      [](Plan& p) { p.groups[0].parts.pop_back(); },
      [](Plan& p) { p.ops[0].kind = OpKind::kGather; },
      [](Plan& p) { p.ops[0].lane = Lane::kInter; },
      [](Plan& p) { p.ops[0].stage = Stage::kApplied; },
      [](Plan& p) { p.ops[0].trigger = Trigger::kStepClosed; },
      [](Plan& p) { p.ops[0].source = Slot::kWeight; },
      [](Plan& p) { p.ops[0].target = Slot::kWeight; }, [](Plan& p) { p.ops[0].matrix = 0; },
      [](Plan& p) { ++p.ops[0].group; }, [](Plan& p) { ++p.ops[0].root; },
      [](Plan& p) { ++p.ops[0].bytes; }, [](Plan& p) { ++p.ops[0].flops; },
      [](Plan& p) { p.ops[0].after.push_back(0); },
      [](Plan& p) { p.ops[0].after_previous.push_back(0); },
      [](Plan& p) { std::swap(p.ops[0], p.ops[1]); },
      [](Plan& p) { std::swap(p.lanes[0][1][0], p.lanes[0][1][1]); },
      [](Plan& p) { p.lanes[0][2].pop_back(); },
      // The same numbers in all, cut in another way.
      [](Plan& p) {
        p.lanes[0][2].insert(p.lanes[0][2].begin(), p.lanes[0][1].back());
        p.lanes[0][1].pop_back();
      }};
  std::set<std::uint64_t> seen = {Fingerprint(Example())};
  for (const auto& change : changes) {
    Plan plan = Example();
    change(plan);
    seen.insert(Fingerprint(plan));
  }
  const auto topologies = OneFieldChanged(Example().topology);
  for (const auto& [field, topology] : topologies) {
    Plan plan = Example();
    plan.topology = topology;
    EXPECT_TRUE(seen.insert(Fingerprint(plan)).second) << field;
  }
  EXPECT_EQ(seen.size(), changes.size() + topologies.size() + 1);
  Plan warned = Example();
  warned.matrices[0].warnings = {"x"};
  EXPECT_EQ(Fingerprint(warned), Fingerprint(Example())) << "advice is not the plan";
}

TEST(PlanText, JsonHasEveryOpAndLane) {
  Plan plan = Example();
  plan.matrices[1].warnings = {"beware"};
  const std::string text = PlanToJson(plan);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["strategy"], "owner");
  EXPECT_EQ(json["topology"]["nodes"], 2);
  ASSERT_EQ(json["ops"].size(), plan.ops.size());
  ASSERT_EQ(json["matrices"].size(), plan.matrices.size());
  ASSERT_EQ(json["lanes"].size(), plan.lanes.size());
  EXPECT_EQ(json["matrices"][1]["owner"], plan.matrices[1].owner);
  EXPECT_EQ(json["matrices"][2]["shard_rows"], plan.matrices[2].shard_rows);
  EXPECT_TRUE(json["matrices"][0]["warnings"].empty());
  EXPECT_EQ(json["matrices"][1]["warnings"], plan.matrices[1].warnings);
  EXPECT_EQ(json["ops"][0]["kind"], "reduce");
  EXPECT_EQ(json["ops"][0]["matrix"], "s");
  EXPECT_EQ(json["ops"][0]["bytes"], 32);
  EXPECT_EQ(json["lanes"][3]["inter"].get<std::vector<std::int32_t>>(),
            plan.lanes[3][static_cast<int>(Lane::kInter)]);
  EXPECT_THAT(text, HasSubstr("\n  \"strategy\""));
  EXPECT_FALSE(json["ops"][0].contains("pass"));
  plan.limits.reduce_each_pass = true;
  plan.ops[0].pass = 2;
  const auto each = nlohmann::json::parse(PlanToJson(plan));
  EXPECT_EQ(each["ops"][0]["pass"], 2);
  EXPECT_EQ(each["limits"]["reduce_each_pass"], true);
}

TEST(PlanText, NamesThatAreNoUtf8DoNotBreakPrinting) {
  absl::StatusOr<Plan> plan =
      BuildPlan(Request(Strategy::kReplicated, 1, 1, {Matrix("\xff\"\n", 4, 2)}));
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_TRUE(nlohmann::json::accept(PlanToJson(*plan)));
}

}  // namespace
}  // namespace weft::testing
