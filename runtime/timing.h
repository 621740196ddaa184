// One measurement: repeated, timed in the stream, the same result on every rank.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/communicators.h"
#include "weft/device.h"
#include "weft/measure.h"

namespace weft::runtime {

struct Timing {
  double seconds = 0;  // median, > 0
  double spread = 0;   // interquartile range over the median
};
// Of times > 0, at least one. Quartiles are interpolated between the nearest two.
Timing Summarize(std::vector<double> seconds);

class Timer {
 public:
  Timer(Device& device, Transport& transport, Communicators& ranks, const MeasureOptions& options)
      : transport_(transport),
        ranks_(ranks),
        options_(options),
        stream_(device.CreateStream(options.name)) {}

  using Enqueue = std::function<absl::Status(Stream&)>;

  // Collective, blocking. `prepared` is how getting ready for it went on this rank; where that or
  // the work fails on one rank, all get its error. Once, then repeatedly: `align`, which may be
  // empty and is not timed, then `work`. A rank that takes no part leaves both empty. Of each
  // repetition the slowest rank counts.
  absl::StatusOr<Timing> Measure(const std::string& what, const absl::Status& prepared,
                                 const Enqueue& align, const Enqueue& work);

 private:
  // This rank's nanoseconds of each repetition.
  absl::StatusOr<std::vector<std::int64_t>> Repeat(int repetitions, const Enqueue& align,
                                                   const Enqueue& work);
  // Of each repetition the longest on any rank.
  absl::StatusOr<std::vector<std::int64_t>> Slowest(
      const absl::StatusOr<std::vector<std::int64_t>>& own, const std::string& what);

  Transport& transport_;
  Communicators& ranks_;
  const MeasureOptions& options_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace weft::runtime
