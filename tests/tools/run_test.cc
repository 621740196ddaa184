// Drives the built tool as a process: results of `weft run`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tests/tools/process.h"
#include "tests/tools/small_model.h"
#include "tools/weft/numbers.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Weft(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {WEFT_TOOL};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

struct Way {
  const char* strategy;
  const char* layout;
  const char* nodes;
  const char* ranks_per_node;
};
std::string NameOf(const Way& way) {
  return std::string(way.strategy) + "_" + way.layout + "_" + way.nodes + "x" + way.ranks_per_node;
}
void PrintTo(const Way& way, std::ostream* out) { *out << NameOf(way); }

std::vector<Way> Ways(const std::vector<std::pair<const char*, const char*>>& grids) {
  std::vector<Way> ways;
  for (const auto& [nodes, ranks] : grids) {
    ways.push_back({"replicated", "replicated", nodes, ranks});
    ways.push_back({"gather", "sharded", nodes, ranks});
    ways.push_back({"owner", "replicated", nodes, ranks});
    ways.push_back({"owner", "sharded", nodes, ranks});
    ways.push_back({"owner", "node_sharded", nodes, ranks});
  }
  return ways;
}

class Run : public ::testing::TestWithParam<Way> {
 protected:
  std::vector<std::string> Arguments() const {
    const Way& way = GetParam();
    return {"run",     model_,    "--strategy",       way.strategy,       "--layout",   way.layout,
            "--nodes", way.nodes, "--ranks-per-node", way.ranks_per_node, "--deadline", "120"};
  }
  Finished RunWith(const std::vector<std::string>& more) const {
    std::vector<std::string> all = Arguments();
    all.insert(all.end(), more.begin(), more.end());
    return RunProgram(Weft(all), {"TMPDIR=" + store_folder_ / "."});
  }

  const TemporaryFolder folder_;
  const TemporaryFolder store_folder_;
  const std::string model_ = folder_ / "model.safetensors";
  const std::string out_ = folder_ / "out.safetensors";
};

// Updated tensors are those of the reference, all others the model's, byte for byte.
TEST_P(Run, WritesWhatTheReferenceMakes) {
  const auto model = SmallModel(1);
  const auto gradients = SmallGradients(1);
  Store(model_, model, {{"format", "pt"}});
  Store(folder_ / "gradients.safetensors", gradients);
  const Finished run =
      RunWith({"--gradients", folder_ / "gradients.safetensors", "--out", out_, "--steps", "3",
               "--lr", "0.05", "--weight-decay", "0.1", "--momentum", "0.8", "--coefficients",
               "you", "--scale", "match_rms_adamw", "--adamw-lr", "0.01", "--verify"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  reference::MuonSettings muon;
  muon.lr = 0.05;
  muon.weight_decay = 0.1;
  muon.momentum = 0.8;
  muon.match_rms_adamw = true;
  muon.iterations = {{4.0848, -6.8946, 2.9270},
                     {3.9505, -6.3029, 2.6377},
                     {3.7418, -5.5913, 2.3037},
                     {2.8769, -3.1427, 1.2046},
                     {2.8366, -3.0525, 1.2012}};
  reference::AdamWSettings adamw;
  adamw.lr = 0.01;
  const auto results = Load(out_);
  ASSERT_EQ(results.size(), model.size());
  std::map<std::string, StoredTensor> gradient;
  for (const StoredTensor& tensor : gradients) gradient[tensor.name] = tensor;
  for (const StoredTensor& tensor : model) {
    ASSERT_EQ(results.count(tensor.name), 1u) << tensor.name;
    const StoredTensor& result = results.at(tensor.name);
    if (gradient.count(tensor.name) == 0) {
      EXPECT_EQ(result, tensor) << tensor.name;
      continue;
    }
    EXPECT_EQ(result.dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(result.shape, tensor.shape) << tensor.name;
    const auto expected =
        ReferenceSteps(tensor, gradient.at(tensor.name), muon, adamw, /*steps=*/3);
    const double change = Distance(expected, tensor.Values());
    // Rounding of what the file holds, after every step.
    const double size = Distance(expected, std::vector<double>(expected.size(), 0.0));
    const double rounding = tensor.dtype == "BF16"  ? 0.15 * change + 3 * 0x1p-8 * size
                            : tensor.dtype == "F16" ? 0.02 * change + 3 * 0x1p-11 * size
                                                    : 0x1p-20 * size;
    EXPECT_LE(Distance(result.Values(), expected), 2e-3 * change + rounding) << tensor.name;
    EXPECT_GT(change, 0.01 * size) << tensor.name;
  }
  EXPECT_EQ(folder_.Files(), 3u);
}

// The result of a rank-1 gradient is known without any reference: f * G / ||G||_F.
TEST_P(Run, RankOneGradientsGiveTheClosedForm) {
  const StoredTensor rows = SmallModel(2).at(6 - 2);  // "h.1.row"
  ASSERT_EQ(rows.name, "h.1.row");
  StoredTensor weight = rows;
  weight.data.assign(weight.data.size(), std::byte{0});
  Store(model_, {weight});
  Store(folder_ / "gradients.safetensors", {rows});
  const Finished run = RunWith({"--gradients", folder_ / "gradients.safetensors", "--out", out_,
                                "--steps", "1", "--lr", "1", "--momentum", "0"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto gradient = rows.Values();
  const auto result = Load(out_).at("h.1.row").Values();
  const double norm = Distance(gradient, std::vector<double>(gradient.size(), 0.0));
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_NEAR(result[i], -0.69644 * gradient[i] / norm, 1e-5);
  }
}

TEST_P(Run, SeededRunsVerifyAndCountEveryUpdate) {
  Store(model_, SmallModel(3));
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const Finished run = RunWith({"--verify", "--json", "--verbose", "--dtype", dtype, "--seed",
                                  "7", "--steps", "3", "--strict"});
    ASSERT_EQ(run.exit_code, 0) << run.err << run.out;
    const auto json = nlohmann::json::parse(run.out);
    EXPECT_EQ(json.at("steps"), 3);
    EXPECT_TRUE(json.at("verify").at("ok"));
    EXPECT_EQ(json.at("verify").at("matrices").size(), json.at("updated").get<std::size_t>());
    EXPECT_EQ(json.at("matrices").size(), json.at("updated").get<std::size_t>());
    // "frozen" has a seeded gradient, too.
    EXPECT_EQ(json.at("updated"), 12);
    EXPECT_GT(json.at("optimizer_seconds"), 0.0);
  }
}

TEST_P(Run, GlooEqualsLocalBitForBit) {
  Store(model_, SmallModel(4));
  const Finished local = RunWith({"--out", out_, "--seed", "3"});
  ASSERT_EQ(local.exit_code, 0) << local.err;
  const std::string gloo_out = folder_ / "gloo.safetensors";
  const Finished gloo =
      RunWith({"--out", gloo_out, "--seed", "3", "--transport", "gloo", "--json"});
  ASSERT_EQ(gloo.exit_code, 0) << gloo.err;
  EXPECT_TRUE(ReadAll(out_) == ReadAll(gloo_out));
  EXPECT_EQ(nlohmann::json::parse(gloo.out).at("transport"), "gloo");
  EXPECT_EQ(store_folder_.Files(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Tool, Run, ::testing::ValuesIn(Ways({{"1", "1"}, {"1", "3"}, {"2", "2"}})),
                         [](const auto& way) { return NameOf(way.param); });

class RunOnce : public ::testing::Test {
 protected:
  RunOnce() { Store(model_, SmallModel(5), {{"format", "pt"}}); }

  const TemporaryFolder folder_;
  const std::string model_ = folder_ / "model.safetensors";
  const std::string out_ = folder_ / "out.safetensors";
};

TEST_F(RunOnce, EqualSeedsGiveEqualFilesAndOthersDoNot) {
  const auto run = [&](const std::string& seed) {
    const Finished finished =
        RunProgram(Weft({"run", model_, "--out", out_, "--ranks-per-node", "2", "--seed", seed}));
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return ReadAll(out_);
  };
  const std::string first = run("1");
  EXPECT_TRUE(run("1") == first);
  EXPECT_FALSE(run("2") == first);
}

// As processes too, of which each might choose for itself.
TEST_F(RunOnce, AutoRunsWhatIsPredictedToBeShortest) {
  const std::vector<std::string> grid = {"--nodes", "2", "--ranks-per-node", "2"};
  const auto with = [&](std::vector<std::string> command, const std::string& strategy) {
    command.insert(command.end(), grid.begin(), grid.end());
    command.insert(command.end(), {"--strategy", strategy});
    return RunProgram(Weft(command));
  };
  const std::string plan = with({"plan", model_}, "auto").out;
  const std::size_t chosen = plan.find("chosen: ");
  ASSERT_NE(chosen, std::string::npos);
  const std::string strategy = plan.substr(chosen + 8, plan.find(' ', chosen + 8) - chosen - 8);
  const Finished named = with({"run", model_, "--out", out_}, strategy);
  ASSERT_EQ(named.exit_code, 0) << named.err;
  const std::string weights = ReadAll(out_);
  for (const char* transport : {"local", "gloo"}) {
    const Finished run =
        with({"run", model_, "--out", out_, "--verify", "--transport", transport}, "auto");
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("; strategy " + strategy + " (auto), layout replicated;"));
    EXPECT_TRUE(ReadAll(out_) == weights);
  }
}

TEST_F(RunOnce, OutputMayReplaceItsModel) {
  const Finished finished =
      RunProgram(Weft({"run", model_, "--out", model_, "--steps", "1", "--verify"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const auto reader = SafetensorsReader::Open(model_);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->metadata().at("format"), "pt");
  EXPECT_EQ((*reader)->entries().size(), SmallModel(5).size());
}

TEST_F(RunOnce, TableNamesRoutingAndMeasures) {
  const Finished run = RunProgram(
      Weft({"run", model_, "--nodes", "2", "--adamw", "^wte$", "--verify", "--verbose"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* text :
       {"12 of 15 tensors updated", "8  Muon: 2-D", "1  AdamW: --adamw ^wte$", "1  AdamW: 4-D",
        "copied: dtype I64", "copied: no elements", "exposed communication", "imbalance",
        "host per job", "inter bytes", "NS runs", "worst: ", "2 x 1 ranks, transport local",
        "replicas: the weights of all 2 ranks were compared, their bits are equal"}) {
    EXPECT_THAT(run.out, HasSubstr(text));
  }
  EXPECT_THAT(run.out, Not(HasSubstr("element-wise")));
}

// The worst tensor stands first, and is the one that the last line names.
TEST_F(RunOnce, TheTableOfVerifyBeginsWithTheWorst) {
  const Finished run = RunProgram(Weft({"run", model_, "--verify", "--verbose"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string header = "of the weight\n";
  const std::size_t first = run.out.find(header);
  ASSERT_NE(first, std::string::npos);
  const std::string table = run.out.substr(first + header.size());
  EXPECT_THAT(table, HasSubstr("\nworst: " + table.substr(0, table.find(' ')) + ", "));
  EXPECT_THAT(run.out, Not(HasSubstr("replicas: ")));  // one rank has nothing to compare with
}

TEST_F(RunOnce, GlooSaysThatItEmulatesNoLinks) {
  const std::string topology = folder_ / "topology.json";
  for (const bool links : {true, false}) {
    WriteAll(topology, std::string(R"({"nodes": 1, "ranks_per_node": 2)") +
                           (links ? R"(, "intra": {"latency_us": 10}})" : "}"));
    const Finished run =
        RunProgram(Weft({"run", model_, "--transport", "gloo", "--topology", topology}));
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_THAT(run.out, HasSubstr("transport gloo"));
    EXPECT_EQ(run.err, links
                           ? "weft: warning: --transport gloo runs over the real connections; the "
                             "links of " +
                                 topology + " are not emulated\n"
                           : "");
  }
  const Finished run =
      RunProgram(Weft({"run", model_, "--transport", "gloo", "--preset", "consumer-2"}));
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("the links of --preset consumer-2 are not emulated\n"));
}

TEST_F(RunOnce, PresetsRunOverEmulatedLinks) {
  const Finished run = RunProgram(Weft({"run", model_, "--preset", "consumer-2", "--verify"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("world: 1 x 2 ranks, transport local"));
}

TEST_F(RunOnce, CopiesOfShardsAreCompared) {
  const Finished run =
      RunProgram(Weft({"run", model_, "--nodes", "2", "--ranks-per-node", "2", "--strategy",
                       "node_local", "--layout", "node_sharded", "--verify"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("replicas: the weights of all 4 ranks were compared"));
}

TEST_F(RunOnce, ManifestsRunWithoutAFile) {
  const std::string manifest = folder_ / "shapes.json";
  WriteAll(manifest, R"({"matrices": [{"name": "wte", "shape": [40, 12]},
      {"name": "h.{}.q", "shape": [12, 12], "dtype": "BF16", "count": 3}]})");
  const Finished run =
      RunProgram(Weft({"run", manifest, "--out", out_, "--nodes", "2", "--ranks-per-node", "2",
                       "--layout", "sharded", "--verify"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto tensors = Load(out_);
  EXPECT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors.at("h.2.q").dtype, "BF16");
}

TEST_F(RunOnce, TraceIsJsonWithEvents) {
  const std::string trace = folder_ / "trace.json";
  const Finished run = RunProgram(Weft({"run", model_, "--trace", trace, "--ranks-per-node", "2"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(ReadAll(trace));
  EXPECT_FALSE(json.at("traceEvents").empty());
}

// With what the shell's ulimit says of it.
Finished Limited(const std::string& limit, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"/bin/sh", "-c", "ulimit " + limit + "; exec \"$0\" \"$@\"",
                                  WEFT_TOOL};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return RunProgram(all);
}

// A disk that is full, as far as a process can tell.
TEST_F(RunOnce, WhatCannotBeWrittenIsAnErrorWithItsCauseAndLeavesNothing) {
  const std::string manifest = folder_ / "shapes.json";
  WriteAll(manifest, R"({"matrices": [{"name": "w", "shape": [200, 200]}]})");
  const std::size_t files = folder_.Files();
  for (const std::vector<std::string>& output :
       {std::vector<std::string>{"--out", out_, "--steps", "1"},
        {"--trace", folder_ / "trace.json", "--steps", "300"}}) {
    for (const char* transport : {"local", "gloo"}) {
      std::vector<std::string> all = {"run",         manifest,  "--ranks-per-node", "3",
                                      "--transport", transport, "--iterations",     "1"};
      all.insert(all.end(), output.begin(), output.end());
      const Finished run = Limited("-f 64", all);
      EXPECT_EQ(run.exit_code, 1) << run.err;
      EXPECT_THAT(run.err, HasSubstr("cannot write " + output[1]));
      EXPECT_THAT(run.err, HasSubstr("File too large"));
      EXPECT_EQ(folder_.Files(), files);
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Sanitizers need more address space than this leaves. Large stacks and one arena: when there is no
// room for one more thread, what runs still has some.
TEST_F(RunOnce, ThreadsThatCannotBeStartedEndTheRunWithASentence) {
  for (const char* limit : {"-s 400000; export MALLOC_ARENA_MAX=1; ulimit -v 2000000",
                            "-s 700000; export MALLOC_ARENA_MAX=1; ulimit -v 3000000"}) {
    const Finished run = Limited(
        limit, {"run", model_, "--nodes", "16", "--ranks-per-node", "64", "--deadline", "60"});
    EXPECT_EQ(run.exit_code, 1) << run.err;
    EXPECT_THAT(run.err, ::testing::StartsWith("weft: "));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}
#endif

// 60000 is near the end of a half's range; AdamW's first step moves every element by its rate.
TEST_F(RunOnce, ValuesThatStopBeingFiniteAreNamedAndNotWritten) {
  const StoredTensor half{"half", "F16", {4}, std::vector<std::byte>(8)};
  StoredTensor weight = half, gradient = half;
  for (int i = 0; i < 4; ++i) {
    const std::uint16_t bits[2] = {tool::FloatToHalf(60000), tool::FloatToHalf(i == 0 ? 1 : -1)};
    std::memcpy(weight.data.data() + 2 * i, &bits[0], 2);
    std::memcpy(gradient.data.data() + 2 * i, &bits[1], 2);
  }
  const std::string gradients = folder_ / "gradients.safetensors";
  Store(model_, {weight, SmallModel(5).front()});
  Store(gradients, {gradient, SmallGradients(5).front()});
  for (const std::vector<std::string>& way : {std::vector<std::string>{},
                                              {"--ranks-per-node", "3"},
                                              {"--ranks-per-node", "3", "--layout", "sharded"},
                                              {"--ranks-per-node", "2", "--transport", "gloo"}}) {
    std::vector<std::string> all = {"run",     model_,       "--gradients", gradients,
                                    "--steps", "1",          "--json",      "--out",
                                    out_,      "--adamw-lr", "10000",       "--adamw-weight-decay",
                                    "0"};
    all.insert(all.end(), way.begin(), way.end());
    const Finished run = RunProgram(Weft(all));
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_EQ(run.err, "weft: values that are not finite in 1 tensor: \"half\" has 3; " + out_ +
                           " is not written\n");
    EXPECT_FALSE(std::filesystem::exists(out_));
    const auto json = nlohmann::json::parse(run.out).at("not_finite");
    EXPECT_EQ(json.at("tensors"), 1);
    EXPECT_EQ(json.at("first").at(0).at("name"), "half");
    EXPECT_EQ(json.at("first").at(0).at("count"), 3);
    EXPECT_EQ(json.at("first").at(0).at("in_model"), 0);
  }
}

TEST_F(RunOnce, ValuesThatWereNotFiniteBeforeAreNamedAndWritten) {
  StoredTensor weight = SmallModel(5).front();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(weight.data.data() + 8, &nan, 4);
  Store(model_, {weight});
  const Finished run = RunProgram(Weft({"run", model_, "--steps", "1", "--json", "--out", out_}));
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err,
            "weft: values that are not finite in 1 tensor: \"wte\" has 1 (1 of them in "
            "the model)\n");
  EXPECT_EQ(nlohmann::json::parse(run.out).at("not_finite").at("first").at(0).at("in_model"), 1);
  EXPECT_TRUE(std::isnan(Load(out_).at("wte").Values()[2]));
  Store(model_, SmallModel(5));
  const Finished clean = RunProgram(Weft({"run", model_, "--steps", "1", "--json"}));
  EXPECT_EQ(clean.err, "");
  EXPECT_EQ(nlohmann::json::parse(clean.out).at("not_finite").at("tensors"), 0);
}

TEST_F(RunOnce, GlooRankAloneEndsAtTheDeadlineAndSaysWhoIsMissing) {
  const TemporaryFolder store;
  const Finished run = RunProgram(
      Weft({"run", model_, "--transport", "gloo", "--ranks-per-node", "2", "--rank", "0", "--world",
            "2", "--store", store / ".", "--deadline", "0.5", "--out", out_}));
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("weft: "));
  EXPECT_THAT(run.err, HasSubstr("1"));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

// One rank is killed while all work: the launcher says which and ends the others.
TEST_F(RunOnce, KilledRankEndsTheGlooRun) {
  const TemporaryFolder stores;
  Running run(Weft({"run", model_, "--transport", "gloo", "--ranks-per-node", "3", "--steps",
                    "100000000", "--out", out_}),
              {"TMPDIR=" + stores / "."});
  std::vector<pid_t> ranks;
  while (ranks.size() < 3) {
    ranks = run.Children();
    std::this_thread::yield();
  }
  ASSERT_EQ(::kill(ranks[1], SIGKILL), 0);
  EXPECT_EQ(run.Wait(), 128 + SIGKILL);
  EXPECT_EQ(stores.Files(), 0u);
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0);
  EXPECT_FALSE(std::filesystem::exists(out_));
}

// The launcher is told to end while its ranks work: nothing of it stays.
TEST_F(RunOnce, SignalledGlooRunRemovesItsStore) {
  const TemporaryFolder stores;
  Running run(Weft({"run", model_, "--transport", "gloo", "--ranks-per-node", "2", "--steps",
                    "100000000", "--out", out_}),
              {"TMPDIR=" + stores / "."});
  // The store is a directory; a sanitizer may keep a file there for a moment.
  const auto is_directory = [](const auto& entry) { return entry.is_directory(); };
  const auto has_store = [&] {
    const std::filesystem::directory_iterator entries(stores / ".");
    return std::any_of(begin(entries), end(entries), is_directory);
  };
  while (!has_store()) std::this_thread::yield();
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 128 + SIGTERM);
  EXPECT_EQ(stores.Files(), 0u);
  EXPECT_FALSE(std::filesystem::exists(out_));
}

}  // namespace
}  // namespace weft::testing
