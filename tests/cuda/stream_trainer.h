// A trainer that lives on streams of its own, as on a GPU: gradients, weights and what reads them
// are device memory, everything is ordered by events, and the host never waits within a run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/world.h"
#include "weft/runtime.h"

namespace weft::testing {

// A rank that is about to hand over a gradient, which its main stream computes.
struct Moment {
  Rank rank;
  Stream& stream;
  int step;
  int matrix;
};

// What becomes of a step's last use of owned weights. Unless released it ends with the step.
enum class LastUse { kReleased, kHeld, kNotBegun };

struct Scenario {
  std::string name;
  ProcessGrid grid;
  Strategy strategy = Strategy::kOwner;
  Layout layout = Layout::kReplicated;
  GradientKind gradient = GradientKind::kLocal;
  std::function<void(RuntimeOptions&)> options = nullptr;
  int period = 1;                        // of NS; a row norm takes its place between
  bool adamw = false;                    // for the odd matrices
  bool mixed = false;                    // the odd matrices are replicated, whatever the layout
  bool gradient_now = false;             // gradients are handed over without an event
  bool reuses_gradients = false;         // one memory for a matrix's gradients, not one per step
  Stage reused_after = Stage::kReduced;  // that stage of the job before
  // By rank and matrix: the order in which gradients come, 0: backward.
  std::uint64_t order = 0;
  // Gradients do not come after this step's reads of the weights: those are in front of Step(), or,
  // of owned weights, where they have to be but not waited for.
  bool reads_apart = false;
  LastUse last_use = LastUse::kReleased;
  // An owner reads its weights outside of uses as well, in front of Step().
  bool reads_as_owner = false;
  // The host waits for the first step, and within a run for no other.
  bool waits_once = false;
  // The last step is to fail: a gradient of rank 0 is not finite. How each stage of its jobs came
  // out, and in which order, is added to the rank's weights.
  bool judged = false;
  // Called with each stream: the trainer's "main", and "layer 0", ... for its weights, and Weft's.
  std::function<void(const std::string& name, Stream& stream)> on_stream = nullptr;
  // Called by each rank when it has committed.
  std::function<void()> before_steps = nullptr;
  // Where it returns false the rank leaves: it destroys what it has and waits for nothing.
  std::function<bool(const Moment& moment)> before_submit = nullptr;
  // Called by each rank when it has closed the last step, with all of it enqueued.
  std::function<void(int rank)> after_steps = nullptr;
  // Called with each error that a rank gets, with which its run ends. Otherwise it is the calling
  // test's failure.
  std::function<void(int rank, const absl::Status& error)> on_error = nullptr;
};

// Every way that a plan can take, small.
std::vector<Scenario> Scenarios();

// Weights of all ranks after `steps` steps, as each holds them. Failures are the calling test's.
using WeightsByRank = std::vector<std::vector<std::vector<float>>>;
using WorldRunner = void (*)(const WorldOptions&, const std::function<void(Rank)>&);
WeightsByRank TrainOnStreams(const Scenario& scenario, int steps, WorldRunner run = RunWorld);

}  // namespace weft::testing
