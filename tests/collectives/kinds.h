// The kinds of transports that a test program has its worlds of. Each program links one definition.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/device.h"
#include "weft/transport.h"

namespace weft::testing {

std::vector<std::string> WorldKinds();

struct WorldParts {
  std::shared_ptr<void> outermost;               // made first, gone last
  std::vector<std::unique_ptr<Device>> devices;  // one for all ranks, or one each
  std::vector<std::unique_ptr<Transport>> transports;
};
// Of the extents, deadline and clock of `options`; `store` is a fresh directory.
WorldParts MakeWorldParts(const std::string& kind, const LocalTransportOptions& options,
                          const std::string& store);

// Calls `body`, on a thread that stands for a rank from now on until its end.
void AsRank(const std::function<void()>& body);
// Calls `body`, in which the thread waits for others than devices.
void WhileBlocked(const std::function<void()>& body);

}  // namespace weft::testing
