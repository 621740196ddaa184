// Collects what happened on one rank and writes it as Chrome/Perfetto trace events.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "weft/clock.h"
#include "weft/plan.h"

namespace weft::runtime {

// Thread-safe. Times are on the device's clock; `offset` moves them onto rank 0's.
class Trace {
 public:
  explicit Trace(int rank) : rank_(rank) {}

  struct OpSpan {
    std::int64_t step;
    std::int32_t op;
    Nanos begin, end;
  };
  struct JobSpan {
    std::int64_t step;
    std::int32_t matrix;
    Nanos submitted;
  };
  struct UserSpan {
    std::string name;
    Nanos begin, end;
  };

  void Add(const OpSpan& span);
  void Add(const JobSpan& span);
  void Add(UserSpan span);
  void set_offset(Nanos offset) { offset_ = offset; }

  // This rank's events, comma-separated JSON objects without surrounding brackets: pid = rank,
  // tid = lane (3 is the trainer); a slice per op; a flow arrow per dependency that crosses lanes;
  // an asynchronous track per job. `origin` (rank 0's clock) becomes time 0; metadata "weft_origin"
  // says which nanosecond of this rank's own clock that is.
  std::string ToJson(const Plan& plan, Nanos origin) const;

  // Earliest time recorded, on rank 0's clock; 0 if there is nothing.
  Nanos First() const;

 private:
  const int rank_;
  Nanos offset_ = 0;
  mutable std::mutex mutex_;
  std::vector<OpSpan> ops_;
  std::vector<JobSpan> jobs_;
  std::vector<UserSpan> user_;
};

// The whole file for all ranks' events.
std::string TraceFile(const std::vector<std::string>& events_by_rank);

}  // namespace weft::runtime
