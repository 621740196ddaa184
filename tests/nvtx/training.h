// Small trainings on local ranks, of which a tool is told, or none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "weft/metrics.h"
#include "weft/runtime.h"

namespace weft::testing {

struct Training {
  const char* name;
  ProcessGrid grid = {2, 2};
  Layout layout = Layout::kReplicated;
  Strategy strategy = Strategy::kOwner;
  PlanLimits limits = {};
  bool pairs = false;

  // Micro-steps that the ranks submit gradients of.
  int parts() const { return limits.reduce_each_pass ? limits.passes : 1; }
};

// Owners, in all ways in which ops differ; and the other strategies.
const std::vector<Training>& Trainings();
inline std::ostream& operator<<(std::ostream& out, const Training& training) {
  return out << training.name;
}

inline constexpr int kTrainedSteps = 3;
// One matrix each; the last has a rule of the caller's.
inline constexpr int kTrainedLayers = 6;
inline std::string TrainedMatrix(int matrix) { return "m" + std::to_string(matrix); }

// What a rank knows of what it did.
struct TrainedRank {
  pid_t thread = 0;
  Plan plan;
  std::vector<Decision> decisions;  // all
};

// Called on the ranks' threads, but `delivered`, which is told the rank's.
struct TrainingHooks {
  std::function<void(const RuleContext&)> in_rule = [](const RuleContext&) {};
  std::function<void(const std::vector<Job>&)> before_step = [](const auto&) {};  // all submitted
  std::function<void(int rank, int step)> after_step = [](int, int) {};
  std::function<void(pid_t rank, int matrix, int step)> delivered = [](pid_t, int, int) {};
};

// Runs it, to the end of the runtimes. In each step a rank waits for every layer on the host, in
// the forward pass, and on a stream of its own, in the backward pass, and at the end for the step.
// Failures are the calling test's.
std::vector<TrainedRank> Train(const Training& training, const TrainingHooks& hooks = {});

}  // namespace weft::testing
