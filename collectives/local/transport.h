// The leaf behind CreateLocalTransports().
#pragma once

#include <memory>
#include <vector>

#include "weft/transport.h"

namespace weft::collectives::local {

// `options` have been checked.
std::vector<std::unique_ptr<Transport>> CreateTransports(const LocalTransportOptions& options);

}  // namespace weft::collectives::local
