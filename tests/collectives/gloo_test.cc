// The gloo transport's start, and its bits beside those of the local transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/collectives/steps.h"
#include "tests/collectives/world.h"
#include "tests/support/seed.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

std::vector<std::vector<StepMemory>> ReceivedOn(const std::string& kind, int size,
                                                const std::vector<Step>& program) {
  World world(kind, size);
  auto communicators = world.Create("all", Iota(size));
  std::vector<std::vector<StepMemory>> memories(program.size(), std::vector<StepMemory>(size));
  OnEachRank(size, [&](int rank) {
    const auto stream = world.NewStream("s");
    for (std::size_t i = 0; i < program.size(); ++i) {
      ASSERT_TRUE(Issue(program[i], *communicators[rank], *stream, memories[i][rank]).ok());
    }
    ASSERT_TRUE(stream->Synchronize(absl::Minutes(5)).ok());
  });
  return memories;
}

TEST(Gloo, GivesTheSameBitsAsLocal) {
  for (const int size : {2, 3, 8}) {
    std::mt19937_64 random(Seed());
    std::vector<Step> program;
    for (int i = 0; i < 40; ++i) {
      program.push_back(RandomStep(random, size));
      program.back().integers = false;
    }
    // Both ways of a reduction, and of a broadcast.
    for (const Kind kind : {Kind::kReduce, Kind::kAllReduce, Kind::kBroadcast}) {
      program.push_back({kind, std::vector<std::int64_t>(size, 100003)});
      program.back().root = size - 1;
    }
    const auto local = ReceivedOn("local", size, program);
    const auto gloo = ReceivedOn("gloo", size, program);
    for (std::size_t i = 0; i < program.size(); ++i) {
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_EQ(local[i][rank].recv, gloo[i][rank].recv) << program[i] << " on rank " << rank;
      }
    }
  }
}

TEST(Gloo, ARankThatDoesNotComeToTheStoreIsNamed) {
  const TemporaryDirectory store;
  OnEachRank(2, [&](int rank) {
    const auto transport = CreateGlooTransport({.rank = rank == 0 ? 0 : 2,
                                                .size = 3,
                                                .store = store.path(),
                                                .deadline = absl::Milliseconds(300)});
    EXPECT_EQ(transport.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Text(transport.status()), HasSubstr("waited 300ms for rank 1 to come to store"));
  });
}

TEST(Gloo, AStoreOfAnEarlierRunIsRefusedOnEveryRank) {
  const TemporaryDirectory store;
  for (const bool again : {false, true}) {
    OnEachRank(3, [&](int rank) {
      const auto transport = CreateGlooTransport({.rank = rank, .size = 3, .store = store.path()});
      EXPECT_EQ(transport.ok(), !again);
      if (again) {
        EXPECT_EQ(transport.status().code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(Text(transport.status()),
                    AllOf(HasSubstr(store.path()), HasSubstr("earlier run")));
      }
    });
  }
}

TEST(Gloo, TheLeftoversOfASmallerRunAreRefused) {
  const TemporaryDirectory store;
  OnEachRank(2, [&](int rank) {
    EXPECT_TRUE(CreateGlooTransport({.rank = rank, .size = 2, .store = store.path()}).ok());
  });
  // Ranks 0 and 1 find their own files, rank 2 a run that does not know it.
  OnEachRank(3, [&](int rank) {
    const auto transport = CreateGlooTransport({.rank = rank, .size = 3, .store = store.path()});
    EXPECT_FALSE(transport.ok()) << "rank " << rank;
    EXPECT_FALSE(absl::IsDeadlineExceeded(transport.status())) << transport.status();
  });
}

TEST(Gloo, WorldsOfDifferentSizesAreRefused) {
  const TemporaryDirectory store;
  OnEachRank(2, [&](int rank) {
    const auto transport =
        CreateGlooTransport({.rank = rank, .size = 2 + rank, .store = store.path()});
    EXPECT_EQ(transport.status().code(), absl::StatusCode::kInvalidArgument) << transport.status();
    EXPECT_THAT(Text(transport.status()), AllOf(HasSubstr("2"), HasSubstr("3")));
  });
}

TEST(Gloo, BadOptionsAreNamed) {
  const TemporaryDirectory store;
  const auto refused = [&](GlooTransportOptions options, const std::string& what) {
    const auto created = CreateGlooTransport(options);
    ASSERT_FALSE(created.ok());
    EXPECT_THAT(Text(created.status()), HasSubstr(what));
  };
  refused({.rank = 2, .size = 2, .store = store.path()}, "rank 2 is not in a world of 2");
  refused({.rank = 0, .size = 0, .store = store.path()}, "size is 0");
  refused({.rank = 0, .size = 1, .store = store.path() + "/none"}, "/none' cannot be read");
  refused({.rank = 0, .size = 1, .store = store.path(), .deadline = absl::ZeroDuration()},
          "deadline is 0");
  refused({.rank = 0, .size = 1, .store = store.path(), .host = "no.such.host.invalid"},
          "no.such.host.invalid");
  std::ofstream(store.path() + "/file") << "x";
  refused({.rank = 0, .size = 1, .store = store.path() + "/file"}, "is not a directory");
}

}  // namespace
}  // namespace weft::testing
