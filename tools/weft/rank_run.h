// One rank's part of `weft run`: load, commit, steps, and bringing the results to rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "tools/weft/session.h"
#include "weft/communicator.h"
#include "weft/metrics.h"

namespace weft::tool {

struct RunReport {
  // By step, then by rank.
  std::vector<std::vector<StepMetrics>> metrics;
  // Rank 0's time inside Submit() and from Step() to delivery; making gradients is left out.
  std::vector<double> step_seconds;
  std::vector<MatrixCounters> counters;  // of rank 0
  // Ranks whose weights were compared with copies of them and have equal bits; 0 when there are
  // none.
  int equal_replicas = 0;
  // By routed matrix: elements of the final weight that are not finite in the file's type.
  std::vector<std::int64_t> not_finite;
  // By routed matrix: whole, in the working type. Only where --out or --verify asks for them.
  std::vector<std::vector<std::byte>> weights;
};

// Blocks until this rank is done or has failed; on failure its peers are told. `report` is filled
// on rank 0. `on_step`, which may be empty, is called there with the number of steps done.
// With --verify and replicated weights, ranks that end with different bits are an Internal error.
absl::Status RunRank(const Session& session, Transport& transport, RunReport& report,
                     const std::function<void(int)>& on_step);

// Elements [first, first + count) of the weight that a run begins with, in the working type.
absl::Status InitialWeights(const Session& session, const RoutedMatrix& matrix, std::int64_t first,
                            std::int64_t count, void* to);

}  // namespace weft::tool
