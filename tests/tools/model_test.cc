// Models, shape manifests, gradients and their routing, without running anything.
#include "tools/weft/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tools/weft/gradients.h"
#include "tools/weft/json_file.h"
#include "tools/weft/routing.h"

namespace weft::tool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::weft::testing::BytesOf;
using ::weft::testing::TemporaryFolder;
using ::weft::testing::WriteAll;

std::string Message(const absl::Status& status) {
  return status.ok() ? "OK" : std::string(status.message());
}

TEST(LayerOf, IsTheFirstNumberInTheName) {
  EXPECT_EQ(LayerOf("wte.weight"), 0);
  EXPECT_EQ(LayerOf("h.0.attn.weight"), 1);
  EXPECT_EQ(LayerOf("model.layers.31.mlp.7.w"), 32);
  EXPECT_EQ(LayerOf("12"), 13);
  EXPECT_EQ(LayerOf("w2.x"), 0);
  EXPECT_EQ(LayerOf(""), 0);
  EXPECT_EQ(LayerOf("a..b."), 0);
  EXPECT_EQ(LayerOf("a.99999999999999999999.w"), 0);
}

TEST(Manifest, RepeatsEntriesAndNumbersLayers) {
  const auto tensors = ParseManifest(
      R"({"matrices": [{"name": "wte", "shape": [50, 8]},
                       {"name": "h.{}.q", "shape": [8, 8], "dtype": "BF16", "count": 2},
                       {"name": "e", "shape": [0, 8], "layer": 5, "count": 2},
                       {"name": "b", "shape": []}]})",
      "m.json");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 6u);
  const auto& t = *tensors;
  EXPECT_EQ(t[0].name, "wte");
  EXPECT_EQ(t[0].dtype, "F32");
  EXPECT_EQ(t[0].elements, 400);
  EXPECT_EQ(t[1].name, "h.0.q");
  EXPECT_EQ(t[1].layer, 1);
  EXPECT_EQ(t[2].name, "h.1.q");
  EXPECT_EQ(t[2].layer, 2);
  EXPECT_EQ(t[2].dtype, "BF16");
  EXPECT_EQ(t[3].name, "e.0");
  EXPECT_EQ(t[3].layer, 5);
  EXPECT_EQ(t[3].elements, 0);
  EXPECT_EQ(t[4].layer, 6);
  EXPECT_EQ(t[5].elements, 1);
}

TEST(Manifest, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const std::string& matrices) {
    return Message(ParseManifest("{\"matrices\": " + matrices + "}", "m.json").status());
  };
  EXPECT_THAT(refused("3"), HasSubstr("m.json: a shape manifest is an object"));
  EXPECT_THAT(refused("[3]"), HasSubstr("entry 0 of matrices is not an object"));
  EXPECT_THAT(refused(R"([{"shape": [1, 1]}])"), HasSubstr("needs a text for name"));
  EXPECT_THAT(refused(R"([{"name": "w"}])"), HasSubstr("matrix \"w\" needs a list of extents"));
  EXPECT_THAT(refused(R"([{"name": "w", "shape": [1, -1]}])"), HasSubstr("not a size"));
  EXPECT_THAT(refused(R"([{"name": "w", "shape": [1, 1.5]}])"), HasSubstr("not a size"));
  EXPECT_THAT(refused(R"([{"name": "w", "shape": [4000000000, 4000000000]}])"),
              HasSubstr("too large"));
  EXPECT_THAT(refused(R"([{"name": "w", "shape": [1, 1], "dtype": "I64"}])"),
              HasSubstr("needs F32, BF16, F16 or F64"));
  EXPECT_THAT(refused(R"([{"name": "w", "shape": [1, 1], "count": 0}])"),
              HasSubstr("integer from 1 to 1000000 for count"));
  EXPECT_THAT(refused(R"([{"name": "w", "shape": [1, 1], "count": 18446744073709551615}])"),
              HasSubstr("for count"));
  EXPECT_THAT(refused(R"([{"name": "w", "shape": [1, 1], "layer": "x"}])"), HasSubstr("for layer"));
  EXPECT_THAT(refused(R"([{"name": "w", "shape": [1, 1], "size": 1}])"),
              HasSubstr("unknown key \"size\""));
  EXPECT_THAT(refused(R"([{"name": "w", "shape": [1]}, {"name": "w", "shape": [1]}])"),
              HasSubstr("the name \"w\" appears twice"));
  EXPECT_THAT(Message(ParseManifest(R"({"matrices": [], "more": 1})", "m.json").status()),
              HasSubstr("unknown key \"more\""));
}

TEST(Json, RefusesDuplicatesDepthAndDamage) {
  EXPECT_THAT(Message(ParseJson(R"({"a": 1, "b": {"a": 1}})", "f").status()), "OK");
  EXPECT_THAT(Message(ParseJson(R"({"a": 1, "a": 2})", "f").status()),
              HasSubstr("f: the key \"a\" appears twice"));
  EXPECT_THAT(Message(ParseJson(R"([{"a": {"b": 1, "b": 2}}])", "f").status()),
              HasSubstr("the key \"b\" appears twice"));
  EXPECT_THAT(Message(ParseJson(std::string(1000000, '['), "f").status()),
              HasSubstr("more than 8 levels"));
  EXPECT_THAT(Message(ParseJson("[[[[[[[[1]]]]]]]]", "f").status()), "OK");
  EXPECT_THAT(Message(ParseJson("[[[[[[[[[1]]]]]]]]]", "f").status()),
              HasSubstr("more than 8 levels"));
  EXPECT_THAT(Message(ParseJson("", "f").status()), HasSubstr("not valid JSON"));
  EXPECT_THAT(Message(ParseJson("{} {}", "f").status()), HasSubstr("not valid JSON"));
  EXPECT_THAT(Message(ParseJson("\"\xff\"", "f").status()), HasSubstr("not valid JSON in UTF-8"));
}

// Any text is either a manifest or refused with one sentence.
RC_GTEST_PROP(Manifest, SurvivesAnyDamage, ()) {
  std::string text =
      R"({"matrices": [{"name": "h.{}.q", "shape": [8, 8], "dtype": "BF16", "count": 2}]})";
  const auto changes = *rc::gen::inRange(1, 6);
  for (int i = 0; i < changes && !text.empty(); ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    const std::string likely = "{}[]\",:0123456789-.e";
    if (*rc::gen::arbitrary<bool>()) {
      text[at] = *rc::gen::elementOf(likely);
    } else {
      text.erase(at, 1);
    }
  }
  const auto tensors = ParseManifest(text, "m.json");
  RC_ASSERT(tensors.ok() || tensors.status().message().find('\n') == absl::string_view::npos);
}

class Files : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::vector<SafetensorsTensor>& tensors,
                    const std::map<std::string, std::string>& metadata = {}) {
    const std::string path = folder_ / name;
    EXPECT_TRUE(WriteSafetensors(path, tensors, metadata).ok());
    return path;
  }
  SafetensorsTensor Floats(const std::string& name, std::vector<std::int64_t> shape) {
    return {name, "F32", std::move(shape), BytesOf(floats_)};
  }

  const TemporaryFolder folder_;
  const std::vector<float> floats_ = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> integers_ = {1, 2};
};

TEST_F(Files, IndexJoinsItsShards) {
  Write("a.safetensors", {Floats("h.1.w", {2, 3})}, {{"format", "pt"}});
  Write("b.safetensors", {Floats("h.0.w", {3, 2}), Floats("wte", {6, 1})});
  const std::string index = folder_ / "model.safetensors.index.json";
  WriteAll(index, R"({"metadata": {"total_size": 72}, "weight_map":
      {"h.1.w": "a.safetensors", "h.0.w": "b.safetensors", "wte": "b.safetensors"}})");
  const auto model = LoadModel(index);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->tensors.size(), 3u);
  EXPECT_EQ(model->tensors[0].name, "wte");
  EXPECT_EQ(model->tensors[1].name, "h.0.w");
  EXPECT_EQ(model->tensors[2].name, "h.1.w");
  EXPECT_EQ(model->metadata.at("format"), "pt");
}

TEST_F(Files, IndexAndShardsMustAgree) {
  Write("a.safetensors", {Floats("w", {2, 3}), Floats("v", {2, 3})});
  const std::string index = folder_ / "model.safetensors.index.json";
  const auto load = [&](const std::string& map) {
    WriteAll(index, "{\"weight_map\": " + map + "}");
    return Message(LoadModel(index).status());
  };
  EXPECT_THAT(load("[]"), HasSubstr("weight_map is not an object"));
  EXPECT_THAT(load(R"({"w": 3})"), HasSubstr("no file name for \"w\""));
  EXPECT_THAT(load(R"({"w": "../a.safetensors"})"), HasSubstr("not the name of a file beside it"));
  EXPECT_THAT(load(R"({"w": ""})"), HasSubstr("not the name of a file beside it"));
  EXPECT_THAT(load(R"({"w": "none.safetensors"})"), HasSubstr("none.safetensors"));
  EXPECT_THAT(load(R"({"w": "a.safetensors"})"),
              HasSubstr("tensor \"v\" is not assigned to this file"));
  EXPECT_THAT(load(R"({"w": "a.safetensors", "v": "a.safetensors", "u": "a.safetensors"})"),
              HasSubstr("tensor \"u\" is missing"));
  WriteAll(index, "{}");
  EXPECT_THAT(Message(LoadModel(index).status()), HasSubstr("neither a safetensors index"));
}

TEST_F(Files, RoutesByShapeTypePatternAndGradient) {
  const std::string path = Write("m.safetensors", {Floats("wte", {3, 2}),
                                                   Floats("h.0.w", {2, 3}),
                                                   Floats("h.0.b", {6}),
                                                   Floats("h.0.conv", {1, 2, 3, 1}),
                                                   Floats("h.1.w", {6, 1}),
                                                   {"empty", "F32", {0, 4}, {}},
                                                   {"ids", "I64", {1, 2}, BytesOf(integers_)}});
  const auto model = LoadModel(path);
  ASSERT_TRUE(model.ok());
  const auto routing = RouteTensors(*model, Gradients::Seeded(0), {"^wte$"});
  ASSERT_TRUE(routing.ok()) << routing.status();
  EXPECT_THAT(routing->reasons,
              ElementsAre(Pair("AdamW: --adamw ^wte$", 1), Pair("AdamW: 1-D", 1),
                          Pair("AdamW: 4-D", 1), Pair("Muon: 2-D", 2), Pair("copied: dtype I64", 1),
                          Pair("copied: no elements", 1)));
  const auto specs = SpecsOf(*model, *routing, Settings());
  ASSERT_EQ(specs.size(), 5u);
  for (const MatrixSpec& spec : specs) {
    EXPECT_EQ(std::holds_alternative<MuonOptions>(spec.rule),
              spec.name == "h.0.w" || spec.name == "h.1.w");
    EXPECT_EQ(spec.rows * spec.cols, 6);
    EXPECT_EQ(spec.rows, spec.name == "h.0.w" ? 2 : spec.name == "wte" ? 3 : 6) << spec.name;
  }
  EXPECT_THAT(Message(RouteTensors(*model, Gradients::Seeded(0), {"("}).status()),
              HasSubstr("--adamw \"(\" is not a regular expression"));
  EXPECT_THAT(Message(RouteTensors(*model, Gradients::Seeded(0), {"lm_head"}).status()),
              HasSubstr("--adamw \"lm_head\" matches no tensor"));
}

TEST_F(Files, GradientsMustFitTheModel) {
  const auto model = LoadModel(
      Write("m.safetensors", {Floats("w", {2, 3}), {"ids", "I64", {2}, BytesOf(integers_)}}));
  ASSERT_TRUE(model.ok());
  const auto open = [&](const SafetensorsTensor& tensor) {
    return Message(Gradients::FromFile(Write("g.safetensors", {tensor}), *model).status());
  };
  EXPECT_THAT(open(Floats("v", {2, 3})), HasSubstr("gradient \"v\" has no tensor of that name"));
  EXPECT_THAT(open(Floats("w", {3, 2})), HasSubstr("has shape [3, 2], the tensor in"));
  EXPECT_THAT(open({"w", "BF16", {2, 3}, BytesOf(floats_).subspan(0, 12)}),
              HasSubstr("has dtype BF16"));
  EXPECT_THAT(open({"ids", "I64", {2}, BytesOf(integers_)}),
              HasSubstr("which no update is defined for"));
  const auto gradients = Gradients::FromFile(Write("g.safetensors", {Floats("w", {2, 3})}), *model);
  ASSERT_TRUE(gradients.ok());
  std::vector<float> filled(6);
  std::size_t w = model->tensors[0].name == "w" ? 0 : 1;
  EXPECT_TRUE(gradients->Has(w));
  EXPECT_FALSE(gradients->Has(1 - w));
  ASSERT_TRUE(gradients->Fill(model->tensors[w], w, 5, 3, filled.data()).ok());
  EXPECT_EQ(filled, floats_);
}

}  // namespace
}  // namespace weft::tool
