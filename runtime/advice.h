// What a committed runtime says about the machine it has come to.
#pragma once

#include "weft/communicator.h"
#include "weft/device.h"
#include "weft/plan.h"

namespace weft::runtime {

// Logs what keeps the lanes of this rank from running side by side, with what to set; on rank 0
// also the transport's notes.
void Advise(const Plan& plan, const Device& device, const Transport& transport);

}  // namespace weft::runtime
