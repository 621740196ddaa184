// What every transport promises about results, against a serial float64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>

#include "tests/collectives/steps.h"
#include "tests/collectives/world.h"
#include "tests/support/seed.h"

namespace weft::testing {
namespace {

using Memories = std::vector<std::vector<StepMemory>>;  // by step, then rank

// Every member runs the whole program on one stream; returns what each received.
Memories RunProgram(World& world, std::vector<std::unique_ptr<Communicator>>& communicators,
                    const std::vector<Step>& program) {
  const int size = static_cast<int>(communicators.size());
  Memories memories(program.size(), std::vector<StepMemory>(size));
  OnEachRank(size, [&](int rank) {
    const std::unique_ptr<Stream> stream = world.NewStream("s", rank);
    for (std::size_t i = 0; i < program.size(); ++i) {
      const absl::Status issued =
          Issue(program[i], *communicators[rank], *stream, memories[i][rank]);
      EXPECT_TRUE(issued.ok()) << program[i] << ": " << issued;
    }
    const absl::Status status = stream->Synchronize(absl::Minutes(5));
    EXPECT_TRUE(status.ok()) << status;
  });
  return memories;
}

void VerifyProgram(const std::vector<Step>& program, const Memories& memories) {
  for (std::size_t i = 0; i < program.size(); ++i) {
    const std::string wrong = Verify(program[i], memories[i]);
    ASSERT_EQ(wrong, "");
  }
}

std::vector<Step> RandomProgram(int size, int steps, std::uint64_t salt) {
  std::mt19937_64 random(Seed() + salt);
  std::vector<Step> program;
  for (int i = 0; i < steps; ++i) program.push_back(RandomStep(random, size));
  return program;
}

// Every kind, dtype, operation, root and place, over even, uneven, partly and wholly zero counts.
std::vector<Step> EveryStep(int size) {
  std::vector<std::vector<std::int64_t>> shapes(4, std::vector<std::int64_t>(size, 0));
  for (int rank = 0; rank < size; ++rank) {
    shapes[1][rank] = 5;
    shapes[2][rank] = rank % 3 == 1 ? 0 : 3 * rank + 1;
    shapes[3][rank] = rank == size - 1 ? 1100 : 0;
  }
  shapes[3][0] += 1;
  std::vector<Step> steps;
  std::uint64_t seed = Seed();
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const auto& counts : shapes) {
      const bool rootless = static_cast<Kind>(kind) == Kind::kAllReduce ||
                            static_cast<Kind>(kind) == Kind::kAllGather ||
                            static_cast<Kind>(kind) == Kind::kReduceScatter;
      // Without a root, two rounds have every variant in place and not.
      for (int root = 0; root < (rootless ? std::min(size, 2) : size); ++root) {
        for (int variant = 0; variant < 6; ++variant) {
          Step step{static_cast<Kind>(kind), counts};
          step.dtype = kDTypes[variant / 2];
          step.op = variant == 1 ? ReduceOp::kMax : ReduceOp::kSum;
          step.root = root;
          step.in_place = (variant + root) % 2 == 1;
          step.integers = variant == 3 || variant == 5;
          step.seed = ++seed;
          steps.push_back(step);
        }
      }
    }
  }
  return steps;
}

class Conformance : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::string kind() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

TEST_P(Conformance, EveryOperationEqualsTheSerialReference) {
  World world(kind(), size());
  auto communicators = world.Create("all", Iota(size()));
  const std::vector<Step> program = EveryStep(size());
  VerifyProgram(program, RunProgram(world, communicators, program));
}

TEST_P(Conformance, RandomProgramsEqualTheSerialReference) {
  World world(kind(), size());
  auto communicators = world.Create("all", Iota(size()));
  const std::vector<Step> program = RandomProgram(size(), 60, 1);
  VerifyProgram(program, RunProgram(world, communicators, program));
}

TEST_P(Conformance, LargeVectorsAreReducedAndMoved) {
  World world(kind(), size());
  auto communicators = world.Create("all", Iota(size()));
  std::vector<Step> program;
  for (int kind = 0; kind < kKinds; ++kind) {
    Step step{static_cast<Kind>(kind), std::vector<std::int64_t>(size(), 300007)};
    step.dtype = kDTypes[kind % kDTypes.size()];
    step.root = size() - 1;
    step.seed = Seed() + kind;
    program.push_back(step);
  }
  VerifyProgram(program, RunProgram(world, communicators, program));
}

TEST_P(Conformance, NobodyPassesABarrierBeforeAllHaveReachedIt) {
  World world(kind(), size());
  auto communicators = world.Create("all", Iota(size()));
  constexpr int kRounds = 20;
  std::vector<std::atomic<int>> reached(kRounds);
  OnEachRank(size(), [&](int rank) {
    const auto stream = world.NewStream("s", rank);
    for (int round = 0; round < kRounds; ++round) {
      stream->Enqueue([&reached, round] {
        ++reached[round];
        return absl::OkStatus();
      });
      ASSERT_TRUE(communicators[rank]->Barrier(*stream, {"", "test"}).ok());
      stream->Enqueue([&reached, round, this] {
        EXPECT_EQ(reached[round], size());
        return absl::OkStatus();
      });
    }
    EXPECT_TRUE(stream->Synchronize(absl::Minutes(5)).ok());
  });
}

TEST_P(Conformance, OrderIsThatOfEnqueueingEvenWhenTheStreamsDiffer) {
  World world(kind(), size());
  auto communicators = world.Create("all", Iota(size()));
  const std::vector<Step> program = RandomProgram(size(), 30, 2);
  Memories memories(program.size(), std::vector<StepMemory>(size()));
  OnEachRank(size(), [&](int rank) {
    const std::unique_ptr<Stream> streams[] = {world.NewStream("a", rank),
                                               world.NewStream("b", rank)};
    std::mt19937_64 random(Seed() + rank);  // the choice of stream is this rank's own affair
    for (std::size_t i = 0; i < program.size(); ++i) {
      ASSERT_TRUE(
          Issue(program[i], *communicators[rank], *streams[random() % 2], memories[i][rank]).ok());
    }
    for (const auto& stream : streams) EXPECT_TRUE(stream->Synchronize(absl::Minutes(5)).ok());
  });
  VerifyProgram(program, memories);
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<std::string, int>>& test) {
  return std::get<0>(test.param) + std::to_string(std::get<1>(test.param));
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance,
                         ::testing::Combine(::testing::ValuesIn(WorldKinds()),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         NameOf);

class Groups : public ::testing::TestWithParam<std::tuple<std::string, ProcessGrid>> {};

// One stream per communicator and rank, all communicators in flight together.
void RunGroups(const std::string& kind, int ranks, const std::vector<std::vector<int>>& groups,
               int rounds) {
  World world(kind, ranks);
  std::vector<std::vector<std::unique_ptr<Communicator>>> communicators;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    communicators.push_back(world.Create("group " + std::to_string(g), groups[g]));
  }
  struct Issued {
    int group;
    Step step;
    std::vector<StepMemory> memory;
  };
  std::mt19937_64 random(Seed() + 3);
  std::vector<Issued> program;
  for (int i = 0; i < rounds; ++i) {
    const int g = static_cast<int>(random() % groups.size());
    const int size = static_cast<int>(groups[g].size());
    program.push_back({g, RandomStep(random, size), std::vector<StepMemory>(size)});
  }
  OnEachRank(ranks, [&](int rank) {
    std::map<int, std::unique_ptr<Stream>> streams;
    for (Issued& issued : program) {
      for (std::unique_ptr<Communicator>& communicator : communicators[issued.group]) {
        if (communicator->world_ranks()[communicator->rank()] != rank) continue;
        std::unique_ptr<Stream>& stream = streams[issued.group];
        if (!stream) stream = world.NewStream("s", rank);
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

TEST_P(Groups, IntraAndInterGroupsOfAGridRunAtOnce) {
  const auto& [kind, grid] = GetParam();
  std::vector<std::vector<int>> groups;
  for (int node = 0; node < grid.nodes; ++node) groups.push_back(grid.Intra(node));
  for (int local = 0; local < grid.ranks_per_node; ++local) groups.push_back(grid.Inter(local));
  RunGroups(kind, grid.size(), groups, kind == "local" ? 400 : 120);
}

INSTANTIATE_TEST_SUITE_P(Transports, Groups,
                         ::testing::Combine(::testing::ValuesIn(WorldKinds()),
                                            ::testing::Values(ProcessGrid{2, 2},
                                                              ProcessGrid{2, 4})),
                         [](const auto& test) {
                           return std::get<0>(test.param) +
                                  std::to_string(std::get<1>(test.param).nodes) + "x" +
                                  std::to_string(std::get<1>(test.param).ranks_per_node);
                         });

class Transports : public ::testing::TestWithParam<std::string> {};

TEST_P(Transports, OverlappingGroupsRunInOneAgreedOrder) {
  RunGroups(GetParam(), 4, {{0, 1}, {2, 3}, {0, 2}}, 100);
}

INSTANTIATE_TEST_SUITE_P(Transports, Transports, ::testing::ValuesIn(WorldKinds()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace weft::testing
