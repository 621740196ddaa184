// Measures steps: what the lanes did, and when the caller waited.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/verdict.h"
#include "weft/clock.h"
#include "weft/metrics.h"
#include "weft/plan.h"

namespace weft::runtime {

// Thread-safe. A step is open from its first call until Complete(); metrics of the last complete
// step can be asked for until the next one completes.
class StepRecorder {
 public:
  void AddJob(std::int64_t step);
  void AddHostTime(std::int64_t step, Nanos duration);
  void StepCalled(std::int64_t step, Nanos time);
  // An op of the plan ran from begin to end. `delivers`: it is the last one of a matrix here.
  // `bytes` is the payload on this rank.
  void AddOp(std::int64_t step, const Op& op, std::int64_t bytes, Nanos begin, Nanos end,
             bool delivers);
  // The caller waited for work of `step`.
  void AddWait(std::int64_t step, Nanos begin, Nanos end);
  void AddOutcome(std::int64_t step, const Outcome& outcome);
  // Everything of the step has run on this rank.
  void Complete(std::int64_t step);

  std::optional<StepMetrics> LastComplete() const;

 private:
  using Span = std::pair<Nanos, Nanos>;
  struct Record {
    StepMetrics metrics;
    Nanos step_called = 0;
    Nanos last_delivered = 0;
    Nanos host_time = 0;
    std::vector<Span> compute;
    std::vector<Span> waits;
    bool complete = false;
  };

  static StepMetrics Summarize(const Record& record);

  mutable std::mutex mutex_;
  std::map<std::int64_t, Record> records_;
};

}  // namespace weft::runtime
