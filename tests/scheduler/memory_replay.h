// What lies in each rank's buffers while a plan runs: told from the ops alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/plan.h"

namespace weft::testing {

struct MemoryUse {
  // Empty, or the first of these: an op read what was not there or had been taken away; two
  // contents lay in the same bytes of a buffer at once, or one beyond the buffer's end; one op
  // wrote a slot while another worked on it; more collectives were under way on a rank than the
  // plan's limits allow.
  std::string error;
  std::vector<std::int64_t> peak_bytes;  // by rank: most bytes alive at once
};

// Plays `steps` steps in an order drawn from `seed`. A content is what a matrix's slot holds in one
// step, or between two writings in it: alive on a rank from the start of the first op that writes
// it (or the submission of the gradient) to the end of the last op that reads or writes it.
// The plan's lists hold ops back, or what each rank needs itself.
enum class Edges { kOfPlan, kOfRank };
MemoryUse ReplayMemory(const Plan& plan, int steps, std::uint64_t seed,
                       Edges edges = Edges::kOfPlan);

// By matrix: what its contents take in buffers on the rank where they take most, all of them
// together, and one part of each lane's largest collective in split form.
std::vector<std::int64_t> MatrixBytes(const Plan& plan);

}  // namespace weft::testing
