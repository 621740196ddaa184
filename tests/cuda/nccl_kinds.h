// Worlds over NCCL and CUDA, under the fakes: a device and a transport per rank.
#pragma once

#include <memory>
#include <vector>

#include "tests/collectives/kinds.h"
#include "tests/fakes/fake.h"
#include "weft/device.h"
#include "weft/transport.h"

namespace weft::testing {

struct NcclWorldOptions {
  NcclTransportOptions transport;  // without rank and store
  fakes::Options fakes;
  Clock* clock = nullptr;
  // Whether the fakes have to be without complaints and leaks at the end of the world.
  bool clean_end = true;
};
WorldParts MakeNcclWorld(const NcclWorldOptions& options, const std::string& store);

// Sums as the seam's other transports form them.
fakes::Options AscendingFakes();

}  // namespace weft::testing
