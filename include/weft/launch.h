// Which rank this process is, as its launcher says.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "weft/grid.h"

#pragma GCC visibility push(default)
namespace weft {

struct Launch {
  int rank = 0;
  ProcessGrid grid;
  std::string launcher;  // "torchrun", "Open MPI" or "Slurm"
};

// Reads, in this order (torchrun also runs under the other two, mpirun under Slurm):
//   torchrun  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//   Open MPI  OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   Slurm     SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NTASKS_PER_NODE or the one count of
//             SLURM_STEP_TASKS_PER_NODE or SLURM_TASKS_PER_NODE
// NotFound when no launcher's first variable is set. InvalidArgument names the variable that is
// missing, is no number or contradicts another: nodes must hold equally many ranks, numbered node
// by node (rank mod ranks per node == local rank).
absl::StatusOr<Launch> LaunchFromEnvironment();

// The same from any source of variables; nothing for one that is not set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;
absl::StatusOr<Launch> ParseLaunch(const Variables& variables);

}  // namespace weft
#pragma GCC visibility pop
