#include "tests/collectives/world.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <thread>
#include <utility>

#include "tests/support/thread_stream.h"

namespace weft::testing {

void OnEachRank(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "weft_test_XXXXXX").string();
  EXPECT_NE(mkdtemp(pattern.data()), nullptr) << pattern;
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
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
  if (kind == "local") {
    auto transports = CreateLocalTransports(options);
    ASSERT_TRUE(transports.ok()) << transports.status();
    transports_ = *std::move(transports);
    return;
  }
  store_ = std::make_unique<TemporaryDirectory>();
  transports_.resize(options.topology.grid.size());
  OnEachRank(size(), [&](int rank) {
    auto transport = CreateGlooTransport(
        {.rank = rank, .size = size(), .store = store_->path(), .deadline = options.deadline});
    ASSERT_TRUE(transport.ok()) << transport.status();
    transports_[rank] = *std::move(transport);
  });
}

std::vector<std::unique_ptr<Communicator>> World::Create(const std::string& name,
                                                         const std::vector<int>& world_ranks) {
  std::vector<std::unique_ptr<Communicator>> communicators(world_ranks.size());
  OnEachRank(static_cast<int>(world_ranks.size()), [&](int member) {
    auto communicator = transports_[world_ranks[member]]->CreateCommunicator(name, world_ranks);
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    communicators[member] = *std::move(communicator);
  });
  return communicators;
}

std::unique_ptr<Stream> World::NewStream(const std::string& name) {
  return std::make_unique<ThreadStream>(name);
}

std::vector<int> Iota(int ranks) {
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace weft::testing
