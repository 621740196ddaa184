#include "tests/cuda/nccl_kinds.h"

#include <gtest/gtest.h>

#include "collectives/nccl/transport.h"
#include "device/cuda/make.h"
#include "tests/collectives/world.h"
#include "tests/support/seed.h"

namespace weft::testing {

std::vector<std::string> WorldKinds() { return {"nccl"}; }

fakes::Options AscendingFakes() {
  fakes::Options options;
  options.seed = Seed();
  options.sum_order = fakes::SumOrder::kAscending;
  return options;
}

WorldParts MakeWorldParts(const std::string& kind, const LocalTransportOptions& options,
                          const std::string& store) {
  EXPECT_EQ(kind, "nccl");
  NcclWorldOptions nccl;
  nccl.transport.size = options.topology.grid.size();
  nccl.transport.deadline = options.deadline;
  nccl.fakes = AscendingFakes();
  nccl.clock = options.clock;
  return MakeNcclWorld(nccl, store);
}

WorldParts MakeNcclWorld(const NcclWorldOptions& options, const std::string& store) {
  fakes::Reset(options.fakes);
  WorldParts parts;
  parts.outermost = std::shared_ptr<void>(nullptr, [clean = options.clean_end](void*) {
    if (!clean) return;
    fakes::CheckLeaks();
    EXPECT_EQ(fakes::FaultText(), "");
  });
  const int size = options.transport.size;
  parts.devices.resize(size);
  parts.transports.resize(size);
  OnEachRank(size, [&](int rank) {
    auto device = device::MakeCudaDevice({.ordinal = rank, .clock = options.clock});
    ASSERT_TRUE(device.ok()) << device.status();
    parts.devices[rank] = *std::move(device);
    WhileBlocked([&] {
      NcclTransportOptions own = options.transport;
      own.rank = rank;
      own.store = store;
      auto transport = collectives::nccl::CreateTransport(own, *parts.devices[rank]);
      ASSERT_TRUE(transport.ok()) << transport.status();
      parts.transports[rank] = *std::move(transport);
    });
  });
  return parts;
}

void AsRank(const std::function<void()>& body) {
  const fakes::HostThread host;
  body();
}

void WhileBlocked(const std::function<void()>& body) {
  const fakes::Blocked blocked;
  body();
}

}  // namespace weft::testing
