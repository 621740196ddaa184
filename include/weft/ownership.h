// What owners are chosen by, beside the FLOPs of a plan request.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

// Lists with an entry per matrix go by the index in PlanRequest::matrices; entries of matrices that
// get no owner are not looked at. The defaults balance FLOPs and know no caps.
struct OwnershipOptions {
  // batch_costs[t][b - 1]: cost of one batch of b matrices of table t, in one unit for all tables
  // (seconds, say); larger batches are not run. matrix_table[m] is the table of matrix m. Empty:
  // a matrix costs its FLOPs, alone or not.
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

}  // namespace weft
