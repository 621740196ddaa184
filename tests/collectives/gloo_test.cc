// The gloo transport's start, and its bits beside those of the local transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/collectives/steps.h"
#include "tests/collectives/world.h"
#include "tests/support/seed.h"
#include "weft/clock.h"

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
  const TemporaryFolder store;
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
  const TemporaryFolder store;
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
  const TemporaryFolder store;
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
  const TemporaryFolder store;
  OnEachRank(2, [&](int rank) {
    const auto transport =
        CreateGlooTransport({.rank = rank, .size = 2 + rank, .store = store.path()});
    EXPECT_EQ(transport.status().code(), absl::StatusCode::kInvalidArgument) << transport.status();
    EXPECT_THAT(Text(transport.status()), AllOf(HasSubstr("2"), HasSubstr("3")));
  });
}

// Three ranks, of which rank 2 tells the other two an address for the group "g" and then does no
// more, as a rank that dies at that moment. They are left waiting for it inside gloo's connecting.
class HalfMade : public ::testing::Test {
 protected:
  // What `others(rank, transport)` does on ranks 0 and 1, and `last` on rank 2 once its address is
  // out.
  void Run(absl::Duration deadline, const std::function<void(int, Transport&)>& others,
           const std::function<void(Transport&)>& last) {
    const TemporaryFolder store;
    OnEachRank(3, [&](int rank) {
      auto transport = CreateGlooTransport(
          {.rank = rank, .size = 3, .store = store.path(), .deadline = deadline});
      ASSERT_TRUE(transport.ok()) << transport.status();
      if (rank < 2) {
        others(rank, **transport);
        return;
      }
      const std::string file = store.path() + "/group.g.";
      Write(file + "members.2", "0, 1, 2");
      std::string addresses;
      while (addresses.empty()) {
        std::this_thread::yield();
        std::ifstream in(file + "address.0", std::ios::binary);
        addresses.assign(std::istreambuf_iterator<char>(in), {});
      }
      // Of the two sides the one with the lower port waits for the other to connect.
      for (const std::size_t at : {std::size_t{0}, addresses.size() / 2}) {
        auto* address = reinterpret_cast<sockaddr_in*>(addresses.data() + at);
        ASSERT_EQ(address->sin_family, AF_INET);
        address->sin_port = 0xffff;
      }
      Write(file + "address.2", addresses);
      last(**transport);
    });
  }

 private:
  static void Write(const std::string& path, const std::string& contents) {
    std::ofstream(path + ".new", std::ios::binary) << contents;
    std::filesystem::rename(path + ".new", path);
  }
};

TEST_F(HalfMade, AnAbortEndsTheConnectingOnEveryRank) {
  Run(
      absl::Minutes(10),
      [](int, Transport& transport) {
        const absl::Status status = transport.CreateCommunicator("g", Iota(3)).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
        EXPECT_THAT(Text(status), HasSubstr("rank 2 aborted: out of paper"));
      },
      [](Transport& transport) { transport.Abort(absl::DataLossError("out of paper")); });
}

TEST_F(HalfMade, ARanksOwnAbortEndsItsConnecting) {
  std::atomic<bool> half_made = false;
  std::atomic<int> ended = 0;
  Run(
      absl::Minutes(10),
      [&](int rank, Transport& transport) {
        std::thread aborter([&] {
          half_made.wait(false);
          transport.Abort(absl::CancelledError("enough"));
        });
        const absl::Status status = transport.CreateCommunicator("g", Iota(3)).status();
        EXPECT_THAT(Text(status), HasSubstr("aborted: enough")) << "rank " << rank;
        aborter.join();
        ++ended;
      },
      [&](Transport&) {
        half_made = true;
        half_made.notify_all();
        while (ended < 2) std::this_thread::yield();
      });
}

TEST_F(HalfMade, TheDeadlineEndsTheConnectingAndNamesTheRankThatIsSilent) {
  constexpr absl::Duration kDeadline = absl::Seconds(2);
  const Nanos since = Clock::Steady().Now();
  std::atomic<int> ended = 0;
  Run(
      kDeadline,
      [&](int rank, Transport& transport) {
        const absl::Status status = transport.CreateCommunicator("g", Iota(3)).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
        EXPECT_THAT(Text(status), HasSubstr("rank 2")) << "rank " << rank;
        ++ended;
      },
      [&](Transport&) {
        while (ended < 2) std::this_thread::yield();
      });
  EXPECT_LE(Clock::Steady().Now() - since, absl::ToInt64Nanoseconds(kDeadline + absl::Seconds(5)));
}

TEST(Gloo, BadOptionsAreNamed) {
  const TemporaryFolder store;
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
