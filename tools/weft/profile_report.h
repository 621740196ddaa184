// A cost profile for people.
#pragma once

#include <ostream>

#include "weft/cost_profile.h"

namespace weft::tool {

// What was measured where, then a table of kernels and one of collectives (docs/profile.md).
void PrintProfile(const CostProfile& profile, std::ostream& out);

}  // namespace weft::tool
