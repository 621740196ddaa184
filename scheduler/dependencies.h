// Derives `after` and `after_previous` of every op from what the ops read and write.
#pragma once

#include "weft/plan.h"

namespace weft::scheduler {

// Every two ops of a rank of which one writes what the other touches become ordered, in the order
// in which Plan::ops has them and across two steps: by their lane, by the lists, or by a chain of
// both. Only edges that no chain implies are listed. Needs lanes in ascending order.
void DeriveDependencies(Plan& plan);

}  // namespace weft::scheduler
