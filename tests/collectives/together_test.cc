// Rooted collectives between GroupStart() and GroupEnd().
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/collectives/steps.h"
#include "tests/collectives/world.h"
#include "tests/support/seed.h"

namespace weft::testing {
namespace {

bool IsRooted(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kGather ||
         kind == Kind::kScatter;
}

Step RandomRootedStep(std::mt19937_64& random, int size) {
  for (;;) {
    if (Step step = RandomStep(random, size); IsRooted(step.kind)) return step;
  }
}

class Together : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::string kind() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

// Groups of 1 to 4 collectives of any kind, root, size and place, with single ones between them.
TEST_P(Together, EveryGroupEqualsItsCollectivesOneByOne) {
  World world(kind(), size());
  auto communicators = world.Create("all", Iota(size()));
  std::mt19937_64 random(Seed() + 11);
  std::vector<std::vector<Step>> program;
  for (int i = 0; i < 60; ++i) {
    std::vector<Step> group(1 + random() % 4);
    for (Step& step : group) step = RandomRootedStep(random, size());
    program.push_back(std::move(group));
    program.push_back({RandomStep(random, size())});
  }
  Step large = RandomRootedStep(random, size());
  large.counts.assign(size(), 300007);
  program.push_back({large, large});
  program.back()[1].root = size() - 1 - large.root;

  std::vector<std::vector<std::vector<StepMemory>>> memories;  // by group, step and rank
  for (const auto& group : program) {
    memories.emplace_back(group.size(), std::vector<StepMemory>(size()));
  }
  OnEachRank(size(), [&](int rank) {
    const auto stream = world.NewStream("s", rank);
    Communicator& communicator = *communicators[rank];
    for (std::size_t g = 0; g < program.size(); ++g) {
      const bool grouped = g % 2 == 0;
      if (grouped) {
        ASSERT_TRUE(communicator.GroupStart().ok());
      }
      for (std::size_t i = 0; i < program[g].size(); ++i) {
        const absl::Status issued =
            Issue(program[g][i], communicator, *stream, memories[g][i][rank]);
        ASSERT_TRUE(issued.ok()) << program[g][i] << ": " << issued;
      }
      if (grouped) {
        ASSERT_TRUE(communicator.GroupEnd().ok());
      }
    }
    const absl::Status status = stream->Synchronize(absl::Minutes(5));
    EXPECT_TRUE(status.ok()) << status;
  });
  for (std::size_t g = 0; g < program.size(); ++g) {
    for (std::size_t i = 0; i < program[g].size(); ++i) {
      ASSERT_EQ(Verify(program[g][i], memories[g][i]), "") << "in group " << g;
    }
  }
}

// What a member does wrong in a group is told at once and at the end, and leaves no trace: the
// members are still in step.
TEST_P(Together, ABadCallEnqueuesNothingOfTheGroup) {
  World world(kind(), size());
  auto communicators = world.Create("all", Iota(size()));
  std::mt19937_64 random(Seed() + 12);
  const Step after = RandomStep(random, size());
  std::vector<StepMemory> memory(size());
  std::vector<std::vector<float>> values(size(), std::vector<float>(4, 1.0f));
  OnEachRank(size(), [&](int rank) {
    const auto stream = world.NewStream("s", rank);
    const auto other = world.NewStream("t", rank);
    Communicator& communicator = *communicators[rank];
    float* buffer = values[rank].data();
    const auto broadcast = [&](Stream& on, int root) {
      return communicator.Broadcast(on, buffer, 8, root, {"m", "test"});
    };
    const auto refused = [&](const absl::Status& call, const std::string& text) {
      EXPECT_EQ(call.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(std::string(call.message()).find(text), std::string::npos) << call;
      EXPECT_EQ(communicator.GroupEnd(), call);
    };
    EXPECT_EQ(communicator.GroupEnd().code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_TRUE(communicator.GroupStart().ok());
    EXPECT_EQ(communicator.GroupStart().code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_TRUE(broadcast(*stream, 0).ok());
    refused(broadcast(*stream, size()), "root");
    ASSERT_TRUE(communicator.GroupStart().ok());
    ASSERT_TRUE(broadcast(*stream, 0).ok());
    refused(broadcast(*other, 0), "another stream");
    ASSERT_TRUE(communicator.GroupStart().ok());
    refused(communicator.AllReduce(*stream, buffer, buffer, 2, DType::kF32, ReduceOp::kSum, {}),
            "only collectives with a root");
    ASSERT_TRUE(communicator.GroupStart().ok());
    ASSERT_TRUE(communicator.GroupEnd().ok()) << "an empty group is nothing";
    ASSERT_TRUE(Issue(after, communicator, *stream, memory[rank]).ok());
    const absl::Status status = stream->Synchronize(absl::Minutes(5));
    EXPECT_TRUE(status.ok()) << status;
  });
  EXPECT_EQ(Verify(after, memory), "");
}

// Every call on a dead communicator says why it is dead, in a group too.
TEST_P(Together, ADeadCommunicatorTakesNoGroup) {
  World world(kind(), size());
  auto communicators = world.Create("all", Iota(size()));
  const auto stream = world.NewStream("s");
  Communicator& communicator = *communicators[0];
  std::vector<float> buffer(4);
  const auto broadcast = [&] {
    return communicator.Broadcast(*stream, buffer.data(), 16, 0, {"m", "test"});
  };
  ASSERT_TRUE(communicator.GroupStart().ok());
  ASSERT_TRUE(broadcast().ok());
  world.transport(0).Abort(absl::AbortedError("the test's"));
  EXPECT_EQ(broadcast(), communicator.status());
  EXPECT_EQ(communicator.GroupEnd(), communicator.status());
  EXPECT_EQ(communicator.GroupStart(), communicator.status());
  EXPECT_FALSE(communicator.status().ok());
  EXPECT_TRUE(stream->Synchronize(absl::Minutes(5)).ok()) << "nothing was enqueued";
}

INSTANTIATE_TEST_SUITE_P(Transports, Together,
                         ::testing::Combine(::testing::ValuesIn(WorldKinds()),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + std::to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace weft::testing
