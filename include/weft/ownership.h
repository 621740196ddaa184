// What owners are chosen by, beside the FLOPs of a plan request.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#pragma GCC visibility push(default)
namespace weft {

// Lists with an entry per matrix go by the index in PlanRequest::matrices; entries of matrices that
// get no owner are not looked at. The defaults balance FLOPs and know no caps.
struct OwnershipOptions {
  // batch_costs[t][b - 1]: cost of one batch of b matrices of table t, in one unit for all tables
  // (seconds, say); larger batches are not run. matrix_table[m] is the table of matrix m; matrices
  // of one table, shape and PlanMatrix::ns_run may run as one batch. Empty: a matrix costs its
  // FLOPs, alone or not, and there are no batches.
  std::vector<std::vector<double>> batch_costs;
  std::vector<std::int32_t> matrix_table;
  // Layer of each matrix, any numbers; those of one layer get owners in different inter groups as
  // far as their costs allow it. Empty: neighbours in use order do.
  std::vector<std::int32_t> layers;
  // Bytes of optimizer state that one rank may own; 0 = any number.
  std::int64_t state_bytes_cap = 0;
  // Bytes that an inter group may carry to and from its owners, over the mean of all groups: 1 or
  // more; 0 = any number.
  double inter_group_factor = 0;
  // Owner of each matrix, -1 for those that get none: solved elsewhere (on one rank, with a solver,
  // then sent to the others). Empty: BuildPlan() chooses.
  std::vector<std::int32_t> owners;
};

// Who finds the owners that a runtime works with (strategy owner, two ranks or more).
enum class OwnerSolver : std::uint8_t {
  kHeuristic,  // every rank: LPT and local search, which are the same everywhere
  // Rank 0: those, then the mixed-integer program where they are not within 0.5 % of the bound. The
  // others take its answer.
  kMilp,
};
std::string_view Name(OwnerSolver solver);
// InvalidArgument names the known ones.
absl::StatusOr<OwnerSolver> ParseOwnerSolver(std::string_view name);

// Strategy owner: which matrices get no owner, but take the path of `replicated` (replicated
// layout) or `gather` (sharded), as without Weft: each rank runs the rule and keeps what that path
// has of state. Owned and element-wise matrices have no choice.
enum class PassThrough : std::uint8_t {
  kNever,
  // Muon matrices for which ComparePassThrough() says that an owner's collectives cost more than
  // repeating NS everywhere saves. None where owners are given or their state is capped.
  kWhereItPays,
  kAlways,  // all that have the choice, custom rules included
};
// "never", "auto", "always".
std::string_view Name(PassThrough pass_through);
// InvalidArgument names the known ones.
absl::StatusOr<PassThrough> ParsePassThrough(std::string_view name);

enum class AssignmentMethod : std::uint8_t {
  kLongestFirst,  // longest processing time first (LPT)
  kLocalSearch,   // LPT, then moves and swaps
  kMilp,          // those, then the mixed-integer program
};
std::string_view Name(AssignmentMethod method);

// How owners were found and how good they are. All zero where no matrix gets one, or where the
// owners were given. With periodic matrices, whose costs fall in some steps alone: of the step that
// has most.
struct AssignmentReport {
  AssignmentMethod taken = AssignmentMethod::kLongestFirst;
  // Cost of the rank with the most, in the unit of the costs (FLOPs or the tables').
  double makespan = 0;
  double lower_bound = 0;    // of every assignment's makespan; of the caps only the state's is used
  double longest_first = 0;  // LPT's makespan
  double local_search = 0;
  bool milp_available = false;
  bool milp_ran = false;
  int targets = 0;           // makespans that the program tried to reach
  bool out_of_time = false;  // a slower or faster machine may give other owners

  double Gap() const { return lower_bound > 0 ? makespan / lower_bound - 1 : 0; }
};

}  // namespace weft
#pragma GCC visibility pop
