#include "scheduler/buffers.h"
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
  return absl::OkStatus();
}

}  // namespace weft::scheduler
