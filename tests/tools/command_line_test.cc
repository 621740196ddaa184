// Drives the built tool as a process: what it refuses, and what `weft plan` prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/tools/process.h"
#include "tests/tools/small_model.h"

namespace weft::testing {
namespace {

using namespace std::string_view_literals;  // texts with a zero byte
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Finished Weft(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {WEFT_TOOL};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return RunProgram(all);
}

class CommandLine : public ::testing::Test {
 protected:
  CommandLine() {
    Store(model_, SmallModel(1));
    Store(gradients_, SmallGradients(1));
    WriteAll(out_, "untouched");
  }

  // Refused with one sentence that holds `text`, nothing printed, the output as it was.
  void Refused(const std::vector<std::string>& arguments, const std::string& text) {
    const Finished run = Weft(arguments);
    EXPECT_EQ(run.exit_code, 2) << text;
    EXPECT_EQ(run.out, "") << text;
    EXPECT_THAT(run.err, AllOf(StartsWith("weft: "), HasSubstr(text)));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_EQ(ReadAll(out_), "untouched") << text;
  }
  void RunRefused(const std::vector<std::string>& options, const std::string& text) {
    std::vector<std::string> all = {"run", model_, "--out", out_};
    all.insert(all.end(), options.begin(), options.end());
    Refused(all, text);
  }

  const TemporaryFolder folder_;
  const std::string model_ = folder_ / "model.safetensors";
  const std::string gradients_ = folder_ / "gradients.safetensors";
  const std::string out_ = folder_ / "out.safetensors";
};

TEST_F(CommandLine, RefusesUnknownCommandsAndOptions) {
  Refused({}, "subcommand");
  Refused({"fly"}, "fly");
  Refused({"run"}, "MODEL");
  RunRefused({"--speed", "3"}, "--speed");
  RunRefused({"--steps", "many"}, "--steps");
  RunRefused({"--steps"}, "--steps");
}

TEST_F(CommandLine, RefusesOptionValues) {
  RunRefused({"--strategy", "magic"}, "--strategy");
  RunRefused({"--layout", "scattered"}, "--layout");
  RunRefused({"--strategy", "replicated", "--layout", "sharded"}, "sharded");
  RunRefused({"--dtype", "f8"}, "--dtype \"f8\" is neither f32, bf16 nor f16");
  RunRefused({"--transport", "pigeon"}, "--transport \"pigeon\"");
  RunRefused({"--owner-solver", "oracle"}, "'oracle' is unknown; it must be heuristic or milp");
  RunRefused({"--pass-through", "some"}, "'some' is unknown; it must be never, auto or always");
  RunRefused({"--owner-seconds", "-1"}, "--owner-seconds must be 0 or a positive number");
  RunRefused({"--owner-seconds", "nan"}, "--owner-seconds");
  RunRefused({"--scale", "large"}, "--scale \"large\"");
  RunRefused({"--segments", "2,x"}, "--segments \"2,x\"");
  RunRefused({"--segments", "2,2"}, "segments");
  RunRefused({"--coefficients", "cubic"}, "--coefficients \"cubic\" is neither");
  RunRefused({"--deadline", "0"}, "--deadline");
  RunRefused({"--deadline", "nan"}, "--deadline");
  RunRefused({"--segments", "2147483647,2147483647,7"}, "add up to 4294967301");
  RunRefused({"--trace", ""}, "--trace: must not be empty");
  RunRefused({"--topology", ""}, "--topology: must not be empty");
  Refused({"run", model_, "--out", ""}, "--out: must not be empty");
  Refused({"run", model_, "--out="}, "--out");
  Refused({"run", ""}, "MODEL: must not be empty");
  RunRefused({"--eps", "0"}, "--eps");
  RunRefused({"--eps", "-1"}, "--eps");
  RunRefused({"--eps", "1e-60"}, "--eps must be a positive normal number");
  RunRefused({"--eps", "1e60"}, "--eps must be a positive normal number");
  RunRefused({"--adamw-eps", "1e-60"}, "eps is 1e-60, not a positive normal number");
  RunRefused({"--lr", "nan"}, "lr");
  RunRefused({"--momentum", "1.5"}, "momentum");
  RunRefused({"--adamw-beta1", "2"}, "beta1");
  RunRefused({"--nodes", "65536", "--ranks-per-node", "65536"}, "ranks are more than the 65536");
  RunRefused({"--nodes", "1025"}, "1025 ranks are more than the 1024 that run on one machine");
  RunRefused({"--adamw", "("}, "--adamw \"(\" is not a regular expression");
  RunRefused({"--adamw", "lm_head"}, "--adamw \"lm_head\" matches no tensor");
  RunRefused({"--rank", "0"}, "need --transport gloo");
  RunRefused({"--transport", "gloo", "--rank", "0"}, "together or not at all");
  RunRefused(
      {"--transport", "gloo", "--rank", "2", "--world", "2", "--store", "/tmp", "--nodes", "2"},
      "--rank 2 is not one of the 2 ranks");
  RunRefused({"--transport", "gloo", "--rank", "0", "--world", "3", "--store", "/tmp"},
             "--world 3 against");
  Refused({"plan", model_, "--rank", "1"}, "--rank 1 is not one of the 1 ranks");
}

// No 0 that counts as "not given", no other base, nothing cut to what fits.
TEST_F(CommandLine, RefusesIntegersOutsideTheirRange) {
  const std::vector<std::pair<std::string, std::string>> ranges = {
      {"--nodes", "1 to 65536"},     {"--ranks-per-node", "1 to 65536"},
      {"--iterations", "1 to 1000"}, {"--steps", "1 to 1000000000"},
      {"--threads", "1 to 1024"},    {"--rank", "0 to 65535"},
      {"--world", "1 to 65536"},     {"--seed", "0 to 18446744073709551615"}};
  for (const auto& [option, range] : ranges) {
    for (const char* value : {"-1", "1.5", "0x1", "", " 1", "1 ", "18446744073709551616"}) {
      RunRefused({option + "=" + value}, option);
    }
    for (const char* value : {"-1", "0x1", "18446744073709551616"}) {
      const std::string quoted = std::string("\"") + value + "\"";
      RunRefused({option, value}, option + ": " + quoted + " is not an integer from " + range);
    }
    if (range.front() == '1') RunRefused({option, "0"}, "\"0\" is not an integer from " + range);
  }
  Refused({"plan", model_, "--nodes", "0"}, "--nodes: \"0\" is not an integer from 1 to 65536");
  Refused({"plan", model_, "--ranks-per-node", "0"}, "--ranks-per-node: \"0\" is not");
  Refused({"plan", model_, "--rank", "-1"}, "--rank: \"-1\" is not an integer from 0");
  const Finished ten = Weft({"plan", model_, "--ranks-per-node", "010"});
  EXPECT_THAT(ten.out, HasSubstr("10 ranks = 1 x 10"));
}

TEST_F(CommandLine, NamesWhatItDidNotExpectAsItStood) {
  Refused({"plan", model_, "--transport", "gloo"}, "not expected here: --transport gloo\n");
  Refused({"run"}, "MODEL is required\n");
}

TEST_F(CommandLine, RefusesStoresThatAreMissingOrUsed) {
  const std::string store = folder_ / "store";
  const std::vector<std::string> alone = {"--transport", "gloo", "--rank",  "0",
                                          "--world",     "1",    "--store", store};
  RunRefused(alone, "store '" + store + "' cannot be read");
  WriteAll(store, "");
  RunRefused(alone, "is not a directory");
  std::filesystem::remove(store);
  std::filesystem::create_directory(store);
  std::vector<std::string> first = {"run", model_};
  first.insert(first.end(), alone.begin(), alone.end());
  EXPECT_EQ(Weft(first).exit_code, 0);
  RunRefused(alone, "holds files of an earlier run");
}

TEST_F(CommandLine, RefusesBadTopologies) {
  const std::string topology = folder_ / "topology.json";
  RunRefused({"--topology", topology}, "topology.json");
  WriteAll(topology, R"({"nodes": 2, "ranks_per_node": 1})");
  RunRefused({"--topology", topology, "--nodes", "3"}, "--nodes 3 against 2 nodes");
  RunRefused({"--topology", topology, "--ranks-per-node", "3"}, "--ranks-per-node 3 against 1");
  WriteAll(topology, R"({"nodes": 0, "ranks_per_node": 1})");
  RunRefused({"--topology", topology}, "nodes");
}

TEST_F(CommandLine, RefusesBadPresets) {
  RunRefused({"--preset", "h100"},
             "--preset: topology: no preset is called 'h100'; there are a800");
  RunRefused({"--preset", ""}, "--preset: must not be empty");
  RunRefused({"--preset", "consumer-2", "--topology", folder_ / "t.json"},
             "--topology and --preset exclude each other");
  RunRefused({"--preset", "consumer-2", "--ranks-per-node", "8"},
             "--ranks-per-node 8 against 2 of --preset consumer-2");
  RunRefused({"--preset", "h100-nvlink", "--nodes", "65536"}, "65536 nodes of 8 ranks");
  Refused({"presets", "h100"}, "'h100'");
  Refused({"presets", "h100-nvlink", "--nodes", "8193"}, "8193 nodes");
  Refused({"presets", "--nodes", "0"}, "--nodes");
  Refused({"presets", ""}, "PRESET");
}

TEST_F(CommandLine, PresetsAreListedAndPrinted) {
  const Finished list = Weft({"presets"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.out, AllOf(HasSubstr("\nh100-nvlink "), HasSubstr("nvlink, 360 GB/s, 3.40 us"),
                              HasSubstr("8 NICs per node, 48.0 GB/s each, 9.60 us"),
                              HasSubstr("no limit"), HasSubstr("2 per node, 16.0 GB/s each")));
  // What is printed is a file that plans alike.
  const Finished file = Weft({"presets", "l20-pcie", "--nodes", "2"});
  EXPECT_EQ(file.exit_code, 0);
  const std::string topology = folder_ / "topology.json";
  WriteAll(topology, file.out);
  const Finished from_file = Weft({"plan", model_, "--topology", topology});
  const Finished from_preset = Weft({"plan", model_, "--preset", "l20-pcie", "--nodes", "2"});
  EXPECT_EQ(from_file.exit_code, 0) << from_file.err;
  EXPECT_EQ(from_file.out, from_preset.out);
  EXPECT_THAT(from_file.out, HasSubstr("\nworld: 16 ranks = 2 x 8\n"
                                       "intra: pcie-switch, 24.0 GB/s, 5.70 us\n"
                                       "inter: 1 NIC per node, 24.0 GB/s each, 9.60 us\n"
                                       "root complexes: 2 per node, 16.0 GB/s each\n"));
  EXPECT_THAT(Weft({"plan", model_}).out,
              HasSubstr("\nintra: not modelled\ninter: not modelled\nstrategy: "));
}

// Two layers whose rule is dear beside their links: one owner each is the shortest step.
TEST_F(CommandLine, AutoPrintsTheAlternativesAndTakesTheBest) {
  const std::string manifest = folder_ / "shapes.json";
  WriteAll(manifest, R"({"matrices": [{"name": "0.w", "shape": [4096, 4096]},
                                      {"name": "1.w", "shape": [4096, 4096]}]})");
  const std::vector<std::string> plan = {"plan", manifest, "--preset", "h100-nvlink", "--strategy"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = plan;
    all.insert(all.end(), more.begin(), more.end());
    return Weft(all);
  };
  const Finished chosen = with({"auto"});
  EXPECT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_THAT(chosen.out,
              AllOf(HasSubstr("\nstrategy: layerwise, layout: replicated"),
                    ContainsRegex("\nstrategy +step +exposed +peak +critical path\n"
                                  "layerwise +[0-9.]+ ms .*compute"),
                    ContainsRegex("\ngather .*2 tensors fall back\n"),
                    ContainsRegex("\nchosen: layerwise is predicted to take .* per step, "
                                  "owner .*; the step is bound by ")));
  // The rest is what the chosen strategy prints.
  const std::string ranks = chosen.out.substr(chosen.out.find("\nrank "));
  EXPECT_THAT(with({"layerwise"}).out, HasSubstr(ranks));
  EXPECT_EQ(with({"auto", "--json"}).out, with({"layerwise", "--json"}).out);
  // Behind a long forward pass it does not matter who does the work.
  EXPECT_THAT(with({"auto", "--forward-ms", "500", "--backward-ms", "1000"}).out,
              ContainsRegex("\nchosen: .* 1\\.5[0-9]* s per step"));
  EXPECT_THAT(with({"auto", "--layout", "sharded"}).out,
              ContainsRegex("\nreplicated +- +- +- +not feasible: .*sharded"));
  EXPECT_THAT(with({"auto", "--nodes", "2", "--layout", "node_sharded"}).out,
              ContainsRegex("\nlayerwise +- +- +- +not feasible: .*node_sharded"));
  EXPECT_THAT(with({"auto", "--strict"}).out, ContainsRegex("\ngather +- +- +- +not feasible: "));
  Refused({"plan", model_, "--strategy", "auto", "--forward-ms", "-1"},
          "--forward-ms and --backward-ms must be 0");
  Refused({"plan", model_, "--forward-ms", "1"}, "are for --strategy auto");
  Refused({"plan", model_, "--switch-nodes", "8"}, "--switch-nodes is for --strategy auto");
  Refused({"plan", model_, "--strategy", "auto", "--switch-nodes", "0"}, "integer from 1 to 65536");
  EXPECT_THAT(chosen.out, Not(HasSubstr("\nswitch: ")));
  RunRefused({"--reduced"}, "not expected here");
  EXPECT_THAT(with({"owner", "--reduced", "--rank", "1"}).out,
              AllOf(HasSubstr("  broadcast "), Not(HasSubstr("reduce "))));
  EXPECT_THAT(with({"auto", "--switch-nodes", "3"}).out,
              ContainsRegex("\nnodes +owner +node_local +shorter\n"
                            "1 +[0-9.]+ ms +[0-9.]+ ms +equal\n"
                            "2 +[0-9.]+ ms +[0-9.]+ ms +[a-z_]+\n"
                            "3 +[0-9.]+ ms +[0-9.]+ ms +[a-z_]+\n"
                            "switch: owner is predicted to be no slower .* 3[ .]"));
}

TEST_F(CommandLine, RefusesBadCoefficientFiles) {
  const std::string file = folder_ / "coefficients.json";
  for (const char* text : {"{}", "[]", "[3]", "[[1, 2]]", "[[1, 2, \"3\"]]", "[[1, 2, 1e999]]"}) {
    WriteAll(file, text);
    RunRefused({"--coefficients", file}, "coefficients.json");
  }
}

TEST_F(CommandLine, RefusesBadModels) {
  const std::string none = folder_ / "none.safetensors";
  Refused({"run", none, "--out", out_}, none);
  Refused({"plan", none}, none);
  const std::string damaged = folder_ / "damaged.safetensors";
  WriteAll(damaged, ReadAll(model_).substr(0, ReadAll(model_).size() - 1));
  Refused({"run", damaged, "--out", out_}, "damaged.safetensors: tensor ");
  WriteAll(damaged, "not a model");
  Refused({"run", damaged, "--out", out_}, "damaged.safetensors");
  const std::string manifest = folder_ / "shapes.json";
  WriteAll(manifest, R"({"matrices": [{"name": "w", "shape": [1000000, 1000000]}]})");
  Refused({"run", manifest, "--out", out_}, "of memory, the machine has");
  WriteAll(manifest, R"({"matrices": [{"name": "w", "shape": [0, 4]}]})");
  Refused({"run", manifest, "--out", out_}, "no tensor of it would be updated");
}

// A test that hangs here has found a FIFO that is waited for.
TEST_F(CommandLine, RefusesSpecialFiles) {
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string json = folder_ / "fifo.json";
  ASSERT_EQ(::mkfifo(json.c_str(), 0600), 0);
  for (const std::string& path : {fifo, json, std::string("/dev/zero"), folder_ / "."}) {
    Refused({"run", path, "--out", out_}, "not a regular file");
    RunRefused({"--topology", path}, "not a regular file");
    RunRefused({"--gradients", path}, "not a regular file");
    RunRefused({"--coefficients", path}, "not a regular file");
  }
}

TEST_F(CommandLine, RefusesJsonAfterAZeroByteAndReservedNames) {
  const std::string manifest = folder_ / "shapes.json";
  WriteAll(manifest, "{\"matrices\": [{\"name\": \"w\", \"shape\": [2, 2]}]}\0x"sv);
  Refused({"plan", manifest}, "not valid JSON");
  WriteAll(manifest, R"({"matrices": [{"name": "__metadata__", "shape": [2, 2]}]})");
  Refused({"plan", manifest}, "\"__metadata__\" is the one that safetensors keeps");
  Refused({"run", manifest, "--out", out_}, "__metadata__");
}

// Names from files reach a terminal as text, in tables and in sentences.
TEST_F(CommandLine, EscapesControlCharactersOfNames) {
  const std::string manifest = folder_ / "shapes.json";
  WriteAll(manifest, R"({"matrices": [{"name": "a\u001b[2J\u009b\u0000\nb", "shape": [4, 4]}]})");
  const std::string shown = "a\\u001b[2J\\u009b\\u0000";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"plan", manifest},
        {"plan", manifest, "--rank", "0"},
        {"plan", manifest, "--segments", "2,2,1", "--coefficients", "polar_express", "--dtype",
         "bf16"},
        {"plan", manifest, "--strategy", "gather", "--layout", "replicated"},
        {"run", manifest, "--verify", "--verbose"},
        {"plan", manifest, "--strategy", "replicated", "--layout", "sharded"}}) {
    const Finished run = Weft(arguments);
    const std::string all = run.out + run.err;
    EXPECT_THAT(all, HasSubstr(shown));
    EXPECT_TRUE(run.out.empty() || run.out.find(shown + "\\u000ab") != std::string::npos);
    for (const char* raw : {"\x1b", "\xc2\x9b"}) EXPECT_EQ(all.find(raw), std::string::npos);
    EXPECT_EQ(all.find('\0'), std::string::npos);
  }
}

TEST_F(CommandLine, RefusesOneFileInTwoPlaces) {
  const std::string link = folder_ / "link.safetensors";
  std::filesystem::create_symlink("model.safetensors", link);
  const std::string hard = folder_ / "hard.safetensors";
  std::filesystem::create_hard_link(model_, hard);
  const std::string before = ReadAll(model_);
  for (const std::string& model : {model_, link, hard, folder_ / "./model.safetensors"}) {
    RunRefused({"--trace", model}, "is the same file as MODEL");
    RunRefused({"--gradients", model}, "is the same file as MODEL");
  }
  RunRefused({"--gradients", gradients_, "--trace", gradients_}, "the same file as --gradients");
  RunRefused({"--trace", out_}, "--out " + out_ + " is the same file as --trace");
  // Neither exists yet.
  const std::string fresh = folder_ / "new";
  Refused({"run", model_, "--out", fresh, "--trace", folder_ / "./new"}, "is the same file as");
  Refused({"run", model_, "--gradients", gradients_, "--out", gradients_},
          "is the same file as --gradients");
  const std::string topology = folder_ / "topology.json";
  WriteAll(topology, R"({"nodes": 1, "ranks_per_node": 1})");
  RunRefused({"--topology", topology, "--trace", topology}, "the same file as --topology");
  // A model of several files is not one that new weights could replace.
  const std::string manifest = folder_ / "shapes.json";
  WriteAll(manifest, R"({"matrices": [{"name": "w", "shape": [2, 2]}]})");
  Refused({"run", manifest, "--out", manifest}, "is the same file as MODEL");
  const std::string index = folder_ / "model.safetensors.index.json";
  nlohmann::json map = nlohmann::json::object();
  for (const StoredTensor& tensor : SmallModel(1)) map[tensor.name] = "model.safetensors";
  WriteAll(index, nlohmann::json({{"weight_map", map}}).dump());
  Refused({"run", index, "--out", model_}, "is the same file as MODEL's file");
  EXPECT_TRUE(ReadAll(model_) == before);
}

TEST_F(CommandLine, RefusesValuesThatCannotBeComputedWith) {
  const auto store = [&](const std::string& path, const std::string& dtype, const auto& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(values[0]));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    Store(path, {{"w", dtype, {static_cast<std::int64_t>(values.size())}, bytes}});
    return path;
  };
  const std::string bad = folder_ / "bad.safetensors";
  const std::string good = folder_ / "good.safetensors";
  const float infinity = std::numeric_limits<float>::infinity();
  store(good, "F32", std::vector<float>{1, 2});
  for (const float value : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    store(bad, "F32", std::vector<float>{0, value});
    Refused({"run", good, "--gradients", bad, "--out", out_},
            "gradient \"w\" has 1 values that are not finite");
  }
  store(good, "F16", std::vector<std::uint16_t>{0x3c00, 0x3c00});
  store(bad, "F16", std::vector<std::uint16_t>{0x7c00, 0x7e00});
  Refused({"run", good, "--gradients", bad, "--out", out_}, "has 2 values that are not finite");
  store(good, "BF16", std::vector<std::uint16_t>{0x3f80, 0x3f80});
  store(bad, "BF16", std::vector<std::uint16_t>{0, 0x7f80});
  Refused({"run", good, "--gradients", bad, "--out", out_}, "has 1 values that are not finite");
  store(good, "F64", std::vector<double>{1, 2});
  store(bad, "F64", std::vector<double>{1e300, 2});
  Refused({"run", good, "--gradients", bad, "--out", out_},
          "gradient \"w\" has 1 values beyond fp32");
  Refused({"run", bad, "--out", out_}, "tensor \"w\" has 1 values beyond fp32");
  Refused({"run", bad, "--out", out_, "--transport", "gloo"}, "values beyond fp32");
}

TEST_F(CommandLine, RefusesGradientsThatDoNotFit) {
  const std::string bad = folder_ / "bad.safetensors";
  StoredTensor unknown = SmallGradients(1).front();
  unknown.name = "unknown";
  Store(bad, {unknown});
  RunRefused({"--gradients", bad}, "gradient \"unknown\" has no tensor of that name");
  StoredTensor shape = SmallGradients(1).front();
  std::swap(shape.shape[0], shape.shape[1]);
  Store(bad, {shape});
  RunRefused({"--gradients", bad}, "has shape [5, 18], the tensor in");
  StoredTensor dtype = SmallGradients(1).front();
  dtype.dtype = "I32";
  Store(bad, {dtype});
  RunRefused({"--gradients", bad}, "has dtype I32, the tensor in");
  WriteAll(bad, ReadAll(gradients_).substr(0, 100));
  RunRefused({"--gradients", bad}, "bad.safetensors: the header of");
  RunRefused({"--gradients", folder_ / "none"}, "none");
}

TEST_F(CommandLine, RefusesOutputsThatCannotBeWritten) {
  Refused({"run", model_, "--out", folder_ / "none/out.safetensors"}, "none/out.safetensors");
  Refused({"run", model_, "--out", folder_ / "."}, "not a regular file");
  RunRefused({"--trace", folder_ / "none/trace.json"}, "none/trace.json");
  // With gloo the launcher finds it, before it starts anything.
  Refused({"run", model_, "--transport", "gloo", "--out", folder_ / "none/out.safetensors"},
          "none/out.safetensors");
}

TEST_F(CommandLine, HelpAndVersionAreNoErrors) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"run", "--help"}, {"plan", "--help"}}) {
    const Finished run = Weft(arguments);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_EQ(run.err, "");
    EXPECT_THAT(run.out, HasSubstr("Usage: weft"));
  }
  EXPECT_THAT(Weft({"run", "--help"}).out, HasSubstr("--ranks-per-node"));
  EXPECT_THAT(Weft({"--version"}).out, StartsWith("weft "));
}

TEST_F(CommandLine, PlanPrintsRanksAndMatrices) {
  const Finished plan = Weft({"plan", model_, "--nodes", "2", "--ranks-per-node", "2"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  for (const char* text : {"4 ranks = 2 x 2", "owner", "balance: ", "h.0.square", "8 x 8", "state",
                           "buffers", "peak", "other path"}) {
    EXPECT_THAT(plan.out, HasSubstr(text));
  }
  const Finished again = Weft({"plan", model_, "--nodes", "2", "--ranks-per-node", "2"});
  EXPECT_EQ(again.out, plan.out);
}

// Three equal matrices on two ranks: nothing is below two of them, which only the program can tell.
TEST_F(CommandLine, PlanSaysHowGoodOwnersAre) {
  const std::string manifest = folder_ / "three.json";
  WriteAll(manifest, R"({"matrices": [{"name": "h.{}.w", "shape": [4096, 4096], "count": 3}]})");
  const std::vector<std::string> plan = {"plan", manifest, "--ranks-per-node", "2"};
  EXPECT_THAT(Weft(plan).out, ContainsRegex("owners: LPT, makespan .*, bound .*, gap .* %, LPT "));
  std::vector<std::string> simple = plan;
  simple.insert(simple.end(), {"--owner-solver", "heuristic"});
  EXPECT_THAT(Weft(simple).out, HasSubstr(", gap 33.3 %, LPT "));
  EXPECT_THAT(Weft({"plan", manifest}).out, Not(HasSubstr("owners: ")));
}

TEST_F(CommandLine, PlanPassesTensorsThrough) {
  const auto plan = [&](const std::string& which) {
    return Weft({"plan", model_, "--nodes", "2", "--all", "--pass-through", which}).out;
  };
  EXPECT_THAT(plan("always"), ContainsRegex("h\\.0\\.square .* all .* "
                                            "pass-through: all-reduce, NS on every rank"));
  // Links that cost nothing leave nothing to be saved.
  EXPECT_THAT(plan("auto"), Not(HasSubstr("pass-through: ")));
  EXPECT_EQ(plan("auto"), plan("never"));
}

// Tensors are shown as the file has them, under one name of their rule.
TEST_F(CommandLine, PlanShowsTensorsAsTheFileHasThem) {
  const Finished plan = Weft({"plan", model_, "--nodes", "2", "--all"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  for (const char* row :
       {"h\\.0\\.square +8 x 8 +F32 +Muon", "h\\.1\\.bf16 +6 x 10 +BF16 +Muon",
        "h\\.2\\.half +5 x 6 +F16 +Muon", "h\\.2\\.double +6 x 4 +F64 as f32 +Muon",
        "h\\.1\\.conv +2 x 3 x 1 x 2 +F32 +AdamW +all .* AdamW: all-reduce",
        "h\\.2\\.scalar +scalar +F32 +AdamW"}) {
    EXPECT_THAT(plan.out, ContainsRegex(row));
  }
  const Finished lanes = Weft({"plan", model_, "--nodes", "2", "--rank", "1"});
  for (const Finished& run : {plan, lanes}) {
    EXPECT_THAT(run.out, Not(AnyOf(HasSubstr("element-wise"), HasSubstr("elementwise"))));
  }
}

TEST_F(CommandLine, PlanShowsTheLanesOfOneRank) {
  const Finished plan =
      Weft({"plan", model_, "--nodes", "2", "--ranks-per-node", "2", "--rank", "3"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  for (const char* text : {"rank 3, lane compute", "rank 3, lane intra", "rank 3, lane inter"}) {
    EXPECT_THAT(plan.out, HasSubstr(text));
  }
}

TEST_F(CommandLine, PlanAsJsonHoldsEveryMatrixAndOp) {
  const Finished plan = Weft({"plan", model_, "--nodes", "2", "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const auto json = nlohmann::json::parse(plan.out);
  EXPECT_EQ(json.at("matrices").size(), 12u);
  EXPECT_FALSE(json.at("ops").empty());
}

// Asked for against the analysis: said once for all matrices of a kind, by both commands, in both
// forms.
TEST_F(CommandLine, UnsafeSegmentsAreWarnedOf) {
  const std::string manifest = folder_ / "shapes.json";
  WriteAll(manifest, R"({"matrices": [{"name": "h.{}.w", "shape": [8, 24], "count": 3}]})");
  const std::string text = "segments [2,2,1] are unsafe for polar_express in bf16: condition ";
  const std::string line = "\nwarning: h.0.w and 2 more: " + text;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"plan"}, {"plan", "--rank", "0"}, {"run", "--steps", "1"}}) {
    std::vector<std::string> arguments = {command[0], manifest,         "--dtype",
                                          "bf16",     "--coefficients", "polar_express"};
    arguments.insert(arguments.end(), command.begin() + 1, command.end());
    EXPECT_THAT(Weft(arguments).out, Not(HasSubstr("warning")));
    arguments.insert(arguments.end(), {"--segments", "2,2,1"});
    const Finished finished = Weft(arguments);
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    const std::size_t at = finished.out.find(line);
    ASSERT_NE(at, std::string::npos) << finished.out;
    EXPECT_EQ(finished.out.find("warning", at + line.size()), std::string::npos) << finished.out;
    EXPECT_THAT(finished.out, HasSubstr("; [1,2,2] would be safe, with 86\n"));

    arguments.emplace_back("--json");
    const auto json = nlohmann::json::parse(Weft(arguments).out);
    if (command[0] == "run") {
      ASSERT_EQ(json.at("warnings").size(), 1u);
      EXPECT_THAT(json["warnings"][0].at("text").get<std::string>(), StartsWith(text));
      EXPECT_EQ(json["warnings"][0].at("matrices").size(), 3u);
    } else {
      ASSERT_EQ(json.at("matrices").size(), 3u);
      for (const auto& matrix : json["matrices"]) {
        ASSERT_EQ(matrix.at("warnings").size(), 1u);
        EXPECT_THAT(matrix["warnings"][0].get<std::string>(), StartsWith(text));
      }
    }
  }
}

// 300 matrices stay readable; --all shows them.
TEST_F(CommandLine, PlanOfALargeModelIsShortUnlessAskedForAll) {
  const std::string manifest = folder_ / "shapes.json";
  WriteAll(manifest, R"({"matrices": [{"name": "h.{}.w", "shape": [64, 64], "count": 300}]})");
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  const Finished brief = Weft({"plan", manifest, "--ranks-per-node", "4"});
  const Finished full = Weft({"plan", manifest, "--ranks-per-node", "4", "--all"});
  ASSERT_EQ(brief.exit_code, 0) << brief.err;
  EXPECT_LT(lines(brief.out), 40);
  EXPECT_THAT(brief.out, HasSubstr("288 cheaper tensors"));
  EXPECT_GT(lines(full.out), 300);
  EXPECT_THAT(full.out, HasSubstr("h.299.w"));
}

}  // namespace
}  // namespace weft::testing
