// What the command line says, checked as far as one option alone can be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/plan.h"
#include "weft/runtime.h"
#include "weft/topology.h"
#include "weft/update.h"

namespace CLI {
class App;
}

namespace weft::tool {

// As typed. Zero and empty mean "not given" where the default depends on another option.
struct Options {
  std::string model;
  int nodes = 0;
  int ranks_per_node = 0;
  std::string topology;
  std::string preset;
  std::string strategy = "owner";
  std::string layout;
  std::string dtype = "f32";
  bool strict = false;
  std::string owner_solver = "milp";
  double owner_seconds = 5;
  std::string pass_through = "auto";
  bool json = false;
  std::vector<std::string> adamw_patterns;

  MuonOptions muon;
  bool no_nesterov = false;
  std::string coefficients = "quintic";
  int iterations = 0;
  std::string segments = "auto";
  std::string scale = "original";
  std::optional<double> eps;
  AdamWOptions adamw;

  // weft plan
  int plan_rank = -1;
  bool all = false;
  std::string profile;
  bool any_profile = false;
  bool reduced = false;  // gradients come reduced
  int switch_nodes = 0;  // 0: not looked for
  double forward_ms = 0;
  double backward_ms = 0;

  // weft profile
  std::string shapes;
  std::string batches;
  std::string sizes;
  int repetitions = 9;
  double longest = 1;

  // weft run
  std::string gradients;
  int steps = 3;
  std::uint64_t seed = 0;
  std::string trace;
  bool verify = false;
  bool verbose = false;

  // weft run, weft profile
  std::string transport = "local";
  int threads = 1;
  double deadline = 600;
  std::string out;
  int rank = -1;
  int world = 0;
  std::string store;
  int error_fd = -1;
};

void AddPlanOptions(CLI::App& app, Options& options);
void AddRunOptions(CLI::App& app, Options& options);
void AddProfileOptions(CLI::App& app, Options& options);
void AddPresetsOptions(CLI::App& app, Options& options);

// What all commands need, from the options.
struct Settings {
  RuntimeOptions runtime;
  bool choose_strategy = false;  // instead of the runtime's
  GradientKind gradient = GradientKind::kLocal;
  Layout layout = Layout::kReplicated;
  MuonOptions muon;
  AdamWOptions adamw;
};

// InvalidArgument with a sentence that names the option.
absl::StatusOr<Settings> SettingsOf(const Options& options);

// InvalidArgument for how ranks are started, which `weft plan` does not do.
absl::Status CheckRankOptions(const Options& options, const Topology& topology);

}  // namespace weft::tool
