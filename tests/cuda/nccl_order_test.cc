// Collectives of several communicators on each device, under many interleavings of the devices'
// work: with the launch order that the process's environment gives. The program is run with and
// without NCCL_LAUNCH_ORDER_IMPLICIT.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/environment.h"
#include "tests/collectives/steps.h"
#include "tests/collectives/world.h"
#include "tests/cuda/nccl_kinds.h"
#include "tests/support/property.h"
#include "tests/support/seed.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool Implicit() {
  return base::EnvironmentVariableAtStart("NCCL_LAUNCH_ORDER_IMPLICIT").has_value();
}

// Three ranks, each in three of these.
const std::vector<std::vector<int>> kGroups = {{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};

struct Issued {
  int group;
  Step step;
  std::vector<StepMemory> memory;
};

void RunProgram(const NcclWorldOptions& options, int steps) {
  const TemporaryFolder store;
  WorldParts world = MakeNcclWorld(options, store.path());
  std::vector<std::vector<std::unique_ptr<Communicator>>> communicators(kGroups.size());
  for (std::size_t g = 0; g < kGroups.size(); ++g) {
    communicators[g].resize(kGroups[g].size());
    OnEachRank(static_cast<int>(kGroups[g].size()), [&](int member) {
      WhileBlocked([&] {
        auto communicator = world.transports[kGroups[g][member]]->CreateCommunicator(
            "group " + std::to_string(g), kGroups[g]);
        ASSERT_TRUE(communicator.ok()) << communicator.status();
        communicators[g][member] = *std::move(communicator);
      });
    });
  }
  std::mt19937_64 random(options.fakes.seed);
  std::vector<Issued> program;
  for (int i = 0; i < steps; ++i) {
    const int g = static_cast<int>(random() % kGroups.size());
    const int size = static_cast<int>(kGroups[g].size());
    program.push_back({g, RandomStep(random, size), std::vector<StepMemory>(size)});
  }
  OnEachRank(3, [&](int rank) {
    std::map<int, std::unique_ptr<Stream>> streams;
    for (Issued& issued : program) {
      for (std::unique_ptr<Communicator>& communicator : communicators[issued.group]) {
        if (communicator->world_ranks()[communicator->rank()] != rank) continue;
        std::unique_ptr<Stream>& stream = streams[issued.group];
        if (!stream) stream = world.devices[rank]->CreateStream("s");
        ASSERT_TRUE(
            Issue(issued.step, *communicator, *stream, issued.memory[communicator->rank()]).ok());
      }
    }
    for (auto& [group, stream] : streams) {
      const absl::Status status = stream->Synchronize(absl::Minutes(5));
      EXPECT_TRUE(status.ok()) << status;
    }
  });
  for (const Issued& issued : program) ASSERT_EQ(Verify(issued.step, issued.memory), "");
}

NcclWorldOptions OptionsOf(std::uint64_t seed) {
  NcclWorldOptions options;
  options.transport.size = 3;
  options.transport.deadline = absl::Minutes(2);
  options.fakes = AscendingFakes();
  options.fakes.seed = seed;
  options.fakes.implicit_launch_order = Implicit();
  // Room for one collective at a time, so that two in the wrong order do not pass each other.
  options.fakes.processors = options.fakes.channels;
  options.fakes.hardware_queues = seed % 2 == 0 ? 1 : 8;
  options.fakes.in_progress_polls = seed % 3 == 0 ? 3 : 0;
  return options;
}

TEST(NcclOrder, NoInterleavingStopsOrMixesCollectives) {
  for (std::uint64_t seed = Seed(); seed < Seed() + (kSanitized ? 20 : 200); ++seed) {
    SCOPED_TRACE(seed);
    RunProgram(OptionsOf(seed), 12);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(NcclOrder, IsSaidAndWhy) {
  const TemporaryFolder store;
  NcclWorldOptions options;
  const WorldParts world = MakeNcclWorld(options, store.path());
  const std::vector<Transport::Note> notes = world.transports[0]->notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].level, Implicit() ? LogLevel::kInfo : LogLevel::kWarning);
  EXPECT_THAT(notes[0].text, HasSubstr(Implicit() ? "NCCL orders the launches"
                                                  : "run one after another because "
                                                    "NCCL_LAUNCH_ORDER_IMPLICIT=1 was not in"));
}

}  // namespace
}  // namespace weft::testing
