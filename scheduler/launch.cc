#include "weft/launch.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "base/status_macros.h"

namespace weft {
namespace {

struct Names {
  const char* launcher;
  const char* rank;
  const char* world;
  const char* local_rank;
  std::vector<const char*> local_size;  // the first that is set counts
};

const std::vector<Names>& Launchers() {
  static const std::vector<Names> launchers = {
      {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", {"LOCAL_WORLD_SIZE"}},
      {"Open MPI",
       "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_SIZE",
       "OMPI_COMM_WORLD_LOCAL_RANK",
       {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {"Slurm",
       "SLURM_PROCID",
       "SLURM_NTASKS",
       "SLURM_LOCALID",
       {"SLURM_NTASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}},
  };
  return launchers;
}

absl::Status Refuse(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("environment: ", name, " ", what));
}

// Slurm writes one count for many nodes as "8(x4)"; a list like "8,4" stays one and is refused.
std::string WithoutRepeat(const std::string& text) {
  const std::size_t repeat = text.find("(x");
  const bool whole = repeat != std::string::npos && text.find(',') == std::string::npos;
  return whole ? text.substr(0, repeat) : text;
}

absl::StatusOr<int> Number(const Variables& variables, const std::string& name, int least) {
  const std::optional<std::string> text = variables(name);
  if (!text) return Refuse(name, "is not set");
  int value = 0;
  if (!absl::SimpleAtoi(WithoutRepeat(*text), &value) || value < least) {
    return Refuse(name, absl::StrCat("is '", *text, "', not a whole number >= ", least));
  }
  return value;
}

absl::StatusOr<Launch> Read(const Variables& variables, const Names& names) {
  std::string size_name = names.local_size.front();
  for (const char* name : names.local_size) {
    if (!variables(name)) continue;
    size_name = name;
    break;
  }
  Launch launch;
  launch.launcher = names.launcher;
  WEFT_ASSIGN_OR_RETURN(launch.rank, Number(variables, names.rank, 0));
  WEFT_ASSIGN_OR_RETURN(const int world, Number(variables, names.world, 1));
  WEFT_ASSIGN_OR_RETURN(const int local_rank, Number(variables, names.local_rank, 0));
  WEFT_ASSIGN_OR_RETURN(const int local_size, Number(variables, size_name, 1));
  if (launch.rank >= world) {
    return Refuse(names.rank,
                  absl::StrCat("is ", launch.rank, ", but ", names.world, " is ", world));
  }
  if (world % local_size != 0) {
    return Refuse(names.world, absl::StrCat("is ", world, ", no multiple of ", size_name, " (",
                                            local_size, "): nodes must hold equally many ranks"));
  }
  if (launch.rank % local_size != local_rank) {
    return Refuse(names.local_rank,
                  absl::StrCat("is ", local_rank, " on rank ", launch.rank, " with ", local_size,
                               " ranks per node: ranks must be numbered node by node"));
  }
  launch.grid = {world / local_size, local_size};
  return launch;
}

}  // namespace

absl::StatusOr<Launch> ParseLaunch(const Variables& variables) {
  for (const Names& names : Launchers()) {
    if (variables(names.rank)) return Read(variables, names);
  }
  return absl::NotFoundError(
      "environment: neither RANK (torchrun) nor OMPI_COMM_WORLD_RANK (Open MPI) nor SLURM_PROCID "
      "(Slurm) is set");
}

absl::StatusOr<Launch> LaunchFromEnvironment() { return ParseLaunch(&base::EnvironmentVariable); }

}  // namespace weft
