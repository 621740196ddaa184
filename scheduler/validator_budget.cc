#include <vector>

#include "scheduler/buffers.h"
#include "scheduler/peak_bytes.h"
#include "scheduler/validator.h"

namespace weft::scheduler {

absl::Status CheckBudget(const Plan& plan) {
  BufferSizes sizes(plan);
  for (int rank = 0; rank < plan.topology.grid.size(); ++rank) {
    const std::int64_t bytes = sizes.Total(rank);
    if (bytes <= plan.limits.buffer_bytes) continue;
    const PlanMatrix& largest = plan.matrices[sizes.Largest(rank)];
    return InvalidPlan("rank ", rank, " has ", bytes, " bytes of buffers, more than the ",
                       plan.limits.buffer_bytes, " that it states; matrix '", largest.name, "' of ",
                       largest.rows, " x ", largest.cols, " takes most of them");
  }
  const std::vector<PeakBytes> peaks = PeakBytesOf(plan);
  for (std::size_t m = 0; m < peaks.size(); ++m) {
    const PlanMatrix& matrix = plan.matrices[m];
    if (matrix.peak_bytes == peaks[m].taken &&
        matrix.alternative_peak_bytes == peaks[m].alternative) {
      continue;
    }
    return InvalidPlan("matrix '", matrix.name, "' states ", matrix.peak_bytes, " bytes and ",
                       matrix.alternative_peak_bytes, " on its other path, not ", peaks[m].taken,
                       " and ", peaks[m].alternative);
  }
  return absl::OkStatus();
}

}  // namespace weft::scheduler
