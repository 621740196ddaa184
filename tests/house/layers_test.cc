// Holds the tree against docs/layers.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/house/tree.h"

namespace {

namespace fs = std::filesystem;

using weft::testing::kRoot;
using weft::testing::Read;

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> items;
  std::istringstream stream(text);
  std::string item;
  while (std::getline(stream, item, ',')) {
    item = std::regex_replace(item, std::regex("^\\s+|\\s+$"), "");
    if (!item.empty()) items.push_back(item);
  }
  return items;
}

struct Layers {
  std::map<std::string, std::set<std::string>> may_include;
  std::map<std::string, std::string> header_layer;  // "clock.h" -> "base"
};

Layers ReadLayers() {
  Layers layers;
  bool headers = false;
  std::istringstream document(Read(kRoot / "docs" / "layers.md"));
  const std::regex row("^\\|(.*)\\|(.*)\\|$");
  std::string line;
  while (std::getline(document, line)) {
    std::smatch match;
    if (!std::regex_match(line, match, row) || line.rfind("|---", 0) == 0) continue;
    const std::vector<std::string> left = SplitList(match[1]), right = SplitList(match[2]);
    if (left == std::vector<std::string>{"layer"}) continue;
    if (left == std::vector<std::string>{"public header"}) {
      headers = true;
      continue;
    }
    if (headers) {
      for (const std::string& header : left) layers.header_layer[header] = right.at(0);
    } else {
      layers.may_include[left.at(0)] = {right.begin(), right.end()};
    }
  }
  return layers;
}

// The longest layer name that is a folder prefix of `path`; empty if none is.
std::string LayerOf(const Layers& layers, const std::string& path) {
  if (path.rfind("include/weft/", 0) == 0) {
    const auto found = layers.header_layer.find(path.substr(13));
    return found == layers.header_layer.end() ? "" : found->second;
  }
  std::string best;
  for (const auto& [layer, unused] : layers.may_include) {
    if (path.rfind(layer + "/", 0) == 0 && layer.size() > best.size()) best = layer;
  }
  return best;
}

std::vector<std::string> SourceFiles() {
  std::vector<std::string> files;
  for (const char* folder :
       {"include", "base", "device", "update", "collectives", "scheduler", "runtime", "c", "cuda",
        "plugins", "tools", "examples", "tests", "bench"}) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cc" || extension == ".cu" || extension == ".c") {
        files.push_back(fs::relative(entry.path(), kRoot));
      }
    }
  }
  return files;
}

bool IsFactory(const std::string& file) {
  return file == "device/factory.cc" || file == "collectives/factory.cc";
}

bool Allowed(const Layers& layers, const std::string& file, const std::string& from,
             const std::string& to, bool target_is_public) {
  if (from == to) return true;
  const std::set<std::string>& allowed = layers.may_include.at(from);
  if (allowed.contains("everything") || allowed.contains(to)) return true;
  if (allowed.contains("public")) return target_is_public;
  return IsFactory(file) && to.rfind(from + "/", 0) == 0;
}

TEST(Layers, EveryPublicHeaderBelongsToALayer) {
  const Layers layers = ReadLayers();
  ASSERT_FALSE(layers.header_layer.empty());
  std::set<std::string> found;
  const fs::path root = kRoot / "include" / "weft";
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) found.insert(fs::relative(entry.path(), root));
  }
  std::set<std::string> listed;
  for (const auto& [header, layer] : layers.header_layer) {
    listed.insert(header);
    EXPECT_TRUE(layers.may_include.contains(layer)) << header << " in unknown layer " << layer;
  }
  EXPECT_EQ(found, listed);
}

TEST(Layers, EveryIncludeIsAnEdgeOfTheTable) {
  const Layers layers = ReadLayers();
  const std::regex include("^\\s*#\\s*include\\s+\"([^\"]+)\"");
  int edges = 0;
  for (const std::string& file : SourceFiles()) {
    const std::string from = LayerOf(layers, file);
    ASSERT_NE(from, "") << file << " is in no layer";
    std::istringstream text(Read(kRoot / file));
    std::string line;
    while (std::getline(text, line)) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      const std::string target = match[1];
      const bool is_public = target.rfind("weft/", 0) == 0;
      if (target.rfind("absl/", 0) == 0 || target.rfind("gloo/", 0) == 0) continue;
      std::string path = is_public ? "include/" + target : target;
      // An example is a project of its own: its root is examples/.
      if (fs::exists(kRoot / ("examples/" + path))) path = "examples/" + path;
      ASSERT_TRUE(fs::exists(kRoot / path))
          << file << " includes " << target << ": not a path from the root";
      const std::string to = LayerOf(layers, path);
      EXPECT_TRUE(Allowed(layers, file, from, to, is_public))
          << file << " (" << from << ") includes " << target << " (" << to << ")";
      ++edges;
    }
  }
  EXPECT_GT(edges, 100) << "the test no longer sees the tree";
}

TEST(Layers, CallsWithOnePlaceStayThere) {
  struct Rule {
    std::regex pattern;
    std::vector<std::string> places;  // folder prefixes
  };
  const std::vector<Rule> rules = {
      {std::regex("_clock::now|\\bgetenv\\b|sleep_for|sleep_until|\\busleep\\b|\\bnanosleep\\b"
                  "|clock_gettime"),
       {"base/", "tests/support/", "plugins/nccl/process.cc"}},
      {std::regex("#\\s*include\\s+[<\"](dnnl|omp\\.h|oneapi/)"), {"device/host/", "bench/"}},
      {std::regex("#\\s*include\\s+[<\"]gloo/"), {"collectives/gloo/"}},
      {std::regex("#\\s*include\\s+[<\"](cuda|cublas)"),
       {"device/cuda/", "collectives/nccl/", "tests/fakes/", "tests/cuda/", "tests/gpu/"}},
      {std::regex("#\\s*include\\s+[<\"]nccl"),
       {"collectives/nccl/", "tests/c/", "tests/fakes/", "tests/cuda/"}},
      {std::regex("#\\s*include\\s+[<\"]nvtx"),
       {"base/", "device/cuda/", "tests/fakes/", "tests/nvtx/"}},
  };
  for (const std::string& file : SourceFiles()) {
    if (file == "tests/house/layers_test.cc") continue;
    std::istringstream text(Read(kRoot / file));
    std::string line;
    while (std::getline(text, line)) {
      for (const Rule& rule : rules) {
        if (!std::regex_search(line, rule.pattern)) continue;
        bool allowed = false;
        for (const std::string& place : rule.places) allowed |= file.rfind(place, 0) == 0;
        EXPECT_TRUE(allowed) << file << ": " << line;
      }
    }
  }
}

TEST(Layers, FilesStaySmall) {
  for (const std::string& file : SourceFiles()) {
    const std::string text = Read(kRoot / file);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    EXPECT_LE(lines, file.rfind("include/", 0) == 0 ? 300 : 600) << file;
  }
}

}  // namespace
