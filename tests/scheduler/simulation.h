// Runs a plan on symbols instead of numbers, with lanes as queues and nothing but the plan's edges
// holding ops back, in an order drawn at random. Ops take time: what an op writes is garbage from
// its start to its end, so that a missing edge spoils the result in some order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/plan.h"

namespace weft::testing {

// Empty if after `steps` steps every rank's weights are what a serial run of the rules on the sum
// of all ranks' gradients gives, for every matrix and row; otherwise what is wrong. The simulation
// has its own reading of what ops do, and takes from the plan only its data.
std::string Simulate(const Plan& plan, int steps, std::uint64_t seed);

}  // namespace weft::testing
