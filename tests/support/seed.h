// One seed for every random choice of a test program, printed at its start.
#pragma once

#include <cstdint>

namespace weft::testing {

// From WEFT_TEST_SEED, otherwise drawn once per process. Set WEFT_TEST_SEED to repeat a run.
std::uint64_t Seed();

}  // namespace weft::testing
