#include "tests/collectives/world.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <latch>
#include <numeric>
#include <thread>
#include <utility>

namespace weft::testing {

void OnEachRank(int ranks, const std::function<void(int)>& body) {
  std::latch ready(ranks);  // whoever looks at all ranks' threads sees all of them
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      AsRank([&] {
        ready.arrive_and_wait();
        body(rank);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
}

World::World(const std::string& kind, const LocalTransportOptions& options) {
  Build(kind, options);
}

World::World(const std::string& kind, int ranks, absl::Duration deadline) {
  LocalTransportOptions options;
  options.topology.grid.ranks_per_node = ranks;
  options.deadline = deadline;
  Build(kind, options);
}

void World::Build(const std::string& kind, const LocalTransportOptions& options) {
  parts_ = MakeWorldParts(kind, options, store_.path());
}

std::vector<std::unique_ptr<Communicator>> World::Create(const std::string& name,
                                                         const std::vector<int>& world_ranks) {
  std::vector<std::unique_ptr<Communicator>> communicators(world_ranks.size());
  OnEachRank(static_cast<int>(world_ranks.size()), [&](int member) {
    WhileBlocked([&] {
      auto communicator = transport(world_ranks[member]).CreateCommunicator(name, world_ranks);
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      communicators[member] = *std::move(communicator);
    });
  });
  return communicators;
}

std::unique_ptr<Stream> World::NewStream(const std::string& name, int rank) {
  return device(rank).CreateStream(name);
}

Device& World::device(int rank) {
  return *parts_.devices[parts_.devices.size() == 1 ? 0 : static_cast<std::size_t>(rank)];
}

std::vector<int> Iota(int ranks) {
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace weft::testing
