// Worlds over the transport plug-in that WEFT_TRANSPORT_PLUGIN names.
#include <gtest/gtest.h>

#include "tests/collectives/kinds.h"
#include "tests/collectives/world.h"
#include "weft/plugin_transport.h"

namespace weft::testing {

std::vector<std::string> WorldKinds() { return {"plugin"}; }

WorldParts MakeWorldParts(const std::string&, const LocalTransportOptions& options,
                          const std::string& store) {
  WorldParts parts;
  auto device = CreateHostDevice({.clock = options.clock});
  EXPECT_TRUE(device.ok()) << device.status();
  parts.devices.push_back(*std::move(device));
  const int size = options.topology.grid.size();
  parts.transports.resize(size);
  OnEachRank(size, [&](int rank) {
    auto transport = CreatePluginTransport(
        {.rank = rank, .size = size, .store = store, .deadline = options.deadline});
    ASSERT_TRUE(transport.ok()) << transport.status();
    parts.transports[rank] = *std::move(transport);
  });
  return parts;
}

void AsRank(const std::function<void()>& body) { body(); }
void WhileBlocked(const std::function<void()>& body) { body(); }

}  // namespace weft::testing
