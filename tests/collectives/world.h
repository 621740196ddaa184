// Ranks as threads over transports of the kinds that the program has.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/collectives/kinds.h"
#include "tests/support/temporary_folder.h"
#include "weft/communicator.h"
#include "weft/device.h"
#include "weft/stream.h"
#include "weft/transport.h"

namespace weft::testing {

// Runs body(rank) on its own thread for every rank and joins them.
void OnEachRank(int ranks, const std::function<void(int)>& body);

// One transport per rank of one of WorldKinds(); the topology's grid gives the extents.
class World {
 public:
  World(const std::string& kind, const LocalTransportOptions& options);
  World(const std::string& kind, int ranks, absl::Duration deadline = absl::Minutes(2));

  int size() const { return static_cast<int>(parts_.transports.size()); }
  Transport& transport(int rank) { return *parts_.transports[rank]; }
  void Destroy(int rank) { parts_.transports[rank].reset(); }

  // By member, in the order of `world_ranks`. A member whose creation fails gets null and a test
  // failure.
  std::vector<std::unique_ptr<Communicator>> Create(const std::string& name,
                                                    const std::vector<int>& world_ranks);
  // On the device of `rank`; where all ranks share one, on that.
  std::unique_ptr<Stream> NewStream(const std::string& name, int rank = 0);
  Device& device(int rank = 0);

 private:
  void Build(const std::string& kind, const LocalTransportOptions& options);

  const TemporaryFolder store_;
  WorldParts parts_;
};

// 0, 1, ... ranks - 1.
std::vector<int> Iota(int ranks);

}  // namespace weft::testing
