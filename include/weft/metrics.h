// What a step cost, and what really ran for each matrix.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/clock.h"
#include "weft/plan.h"

#pragma GCC visibility push(default)
namespace weft {

// One rank's view of one step. Times in seconds on the device's clock.
struct StepMetrics {
  std::int64_t step = 0;
  std::int64_t jobs = 0;
  // The call of Step(), and the delivery of the last matrix on this rank. On the device's clock; on
  // rank 0's where all ranks' metrics were gathered.
  Nanos step_called = 0;
  Nanos last_delivered = 0;
  // From the one to the other. Includes waiting for ranks that call Step() later.
  double optimizer_seconds = 0;
  // Part of the caller's waits (Wait, ParameterNeeded, WaitForLayer, WaitForStep) during which this
  // rank's compute lane was idle: communication, and peers' work, that nothing hid.
  double exposed_communication_seconds = 0;
  // Orthogonalization; and all of the compute lane.
  double ns_seconds = 0;
  double compute_seconds = 0;
  // Time in collectives, and their payload, by lane (kCompute stays 0).
  std::array<double, kLaneCount> lane_seconds = {};
  std::array<std::int64_t, kLaneCount> lane_bytes = {};
  // Norm of all gradients together before clipping, and what they were multiplied by. The norm is 0
  // where the step ended in an error.
  double gradient_norm = 0;
  double clip_factor = 1;
  // Matrices that the step left as they were: all of them where it changed nothing.
  std::int64_t skipped_matrices = 0;
  // The caller's thread inside Submit, Step and Progress, waits left out, per job.
  double host_microseconds_per_job = 0;
};

// What the optimizer adds to a step once every gradient is there: from the last rank's call of
// Step() to the last delivery on any rank. Requires metrics on one clock; empty gives 0.
double OptimizerSeconds(const std::vector<StepMetrics>& ranks);

// Slowest rank's compute_seconds over the mean; 1 is perfect balance. Empty or all zero gives 1.
double Imbalance(const std::vector<StepMetrics>& ranks);

// Since Commit(), on this rank.
struct MatrixCounters {
  std::string name;
  std::string path;      // as planned
  std::string fallback;  // as planned; empty if none
  std::int64_t ns_runs = 0;
  std::int64_t row_norms = 0;    // periodic: updates of this rank by row norm
  std::int64_t updates = 0;      // times the weight held here was written by a rule
  std::int64_t collectives = 0;  // this rank took part in
  std::int64_t bytes = 0;        // payload of those
  // Last step in which some rank had a gradient for it, and none missed one under
  // MissingGradient::kError; -1 if none yet.
  std::int64_t last_gradient_step = -1;
};

// One entry of the ring of recent decisions; readable at any time, also after a failure.
struct Decision {
  enum class What : std::uint8_t { kSubmitted, kIssued, kStarted, kFinished, kFailed };
  Nanos time = 0;
  std::int64_t step = 0;
  What what = What::kSubmitted;
  std::int32_t op = -1;  // index into Plan::ops; -1 for kSubmitted
  std::int32_t matrix = -1;
  Lane lane = Lane::kCompute;
  std::int64_t bytes = 0;
};

}  // namespace weft
#pragma GCC visibility pop
