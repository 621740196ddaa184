// What happens over NCCL when something goes wrong: an error on every rank, within the deadline,
// that names who and where, and nothing left behind. Time is the tests' own.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/collectives/world.h"
#include "tests/cuda/nccl_kinds.h"
#include "tests/support/seed.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kDeadline = absl::Seconds(20);
constexpr absl::Duration kForEver = absl::Hours(24 * 365);

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Ranks over NCCL with a clock of the test's.
class Ranks {
 public:
  explicit Ranks(int size, const std::function<void(NcclWorldOptions&)>& change = nullptr) {
    NcclWorldOptions options;
    options.transport.size = size;
    options.transport.deadline = kDeadline;
    options.fakes = AscendingFakes();
    // The watching threads, not the engine, end what hangs here.
    options.fakes.grace_ms = 600'000;
    options.clock = &clock_;
    if (change) change(options);
    parts_ = MakeNcclWorld(options, store_.path());
  }

  ManualClock& clock() { return clock_; }
  // Lets time pass, in steps that everyone who looks at the clock gets to see, until `done` or
  // `most` has passed.
  bool PassUntil(absl::Duration most, const std::function<bool()>& done) {
    constexpr int kSteps = 1000;
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock<std::mutex> lock(mutex);
    for (int i = 0; i < kSteps && !done(); ++i) {
      clock_.Advance(absl::ToInt64Nanoseconds(most) / kSteps);
      (void)Clock::Steady().WaitUntil(never, lock, Clock::Steady().Now() + 2'000'000);
    }
    return done();
  }
  Device& device(int rank) { return *parts_.devices[rank]; }
  Transport& transport(int rank) { return *parts_.transports[rank]; }
  void Destroy(int rank) { parts_.transports[rank].reset(); }
  // Of a rank that hears of it in its own time, which is not the clock's.
  absl::Status FailureOf(int rank) {
    absl::Status failure;
    (void)PassUntil(absl::ZeroDuration(), [&] {
      failure = transport(rank).failure();
      return !failure.ok();
    });
    return failure;
  }

 private:
  ManualClock clock_;
  const TemporaryFolder store_;
  WorldParts parts_;
};

// One rank's communicator with a stream and a vector to reduce.
struct Place {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Buffer> data;

  absl::Status AllReduce(const char* matrix) {
    return communicator->AllReduce(*stream, data->data(), data->data(), 64, DType::kF32,
                                   ReduceOp::kSum, {matrix, "test"});
  }
  absl::Status Finish() { return stream->Synchronize(kForEver); }
};

std::vector<Place> Places(Ranks& ranks, const std::string& name, const std::vector<int>& members) {
  std::vector<Place> places(members.size());
  OnEachRank(static_cast<int>(members.size()), [&](int i) {
    WhileBlocked([&] {
      Place& place = places[i];
      auto communicator = ranks.transport(members[i]).CreateCommunicator(name, members);
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      place.communicator = *std::move(communicator);
      Device& device = ranks.device(members[i]);
      place.stream = device.CreateStream(name);
      place.data = *device.Allocate(64 * sizeof(float));
      device.Clear(*place.stream, place.data->data(), place.data->bytes());
      EXPECT_TRUE(place.stream->Synchronize(kForEver).ok());
    });
  });
  return places;
}

// Long enough for a deadline to pass however late the device was seen to begin.
constexpr absl::Duration kPastTheDeadline = absl::Seconds(100);
constexpr absl::Duration kBeforeTheDeadline = absl::Seconds(18);

// What the members' issue() and then finish() return, each on a thread of its own, while time
// passes: at most `most`.
std::vector<absl::Status> Outcomes(Ranks& ranks, const std::vector<int>& members,
                                   const std::function<absl::Status(int)>& issue,
                                   const std::function<absl::Status(int)>& finish,
                                   absl::Duration most) {
  const int count = static_cast<int>(members.size());
  std::vector<absl::Status> statuses(members.size());
  std::atomic<int> done = 0;
  OnEachRank(count + 1, [&](int i) {
    WhileBlocked([&] {
      if (i < count) {
        statuses[i] = issue(i);
        if (statuses[i].ok()) statuses[i] = finish(i);
        ++done;
      } else if (!ranks.PassUntil(most, [&] { return done == count; })) {
        ADD_FAILURE() << "after " << most << " " << done << " of " << count << " ranks are done";
        for (const int member : members) {
          ranks.transport(member).Abort(absl::InternalError("the test gives up"));
        }
      }
    });
  });
  return statuses;
}

TEST(NcclFailure, ARankThatNeverComesIsNamedOnEveryOther) {
  Ranks ranks(4);
  std::vector<Place> places = Places(ranks, "inter 1", Iota(4));
  const std::vector<absl::Status> ends = Outcomes(
      ranks, {0, 1, 2}, [&](int i) { return places[i].AllReduce("blk.0.wq"); },
      [&](int i) { return places[i].Finish(); }, kPastTheDeadline);
  for (int rank = 0; rank < 4; ++rank) {
    const absl::Status story = ranks.FailureOf(rank);
    EXPECT_THAT(Text(story), HasSubstr("for rank 3 in all-reduce of matrix 'blk.0.wq'"));
    const absl::Status status = places[rank].communicator->status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(Text(status),
                AllOf(HasSubstr(absl::StrCat("communicator 'inter 1' (rank ", rank, "):")),
                      HasSubstr("for rank 3 in all-reduce of matrix 'blk.0.wq'")));
    // Dead: the same status at once, and nothing is enqueued.
    EXPECT_EQ(places[rank].AllReduce("blk.1.wq"), status);
    if (rank < 3) {
      EXPECT_EQ(ends[rank], status);
    }
  }
}

TEST(NcclFailure, NothingEndsBeforeTheDeadline) {
  Ranks ranks(2);
  std::vector<Place> places = Places(ranks, "all", Iota(2));
  // Rank 1 comes when most of it has passed.
  OnEachRank(2, [&](int rank) {
    WhileBlocked([&] {
      if (rank == 1) ranks.PassUntil(kBeforeTheDeadline, [] { return false; });
      EXPECT_TRUE(places[rank].AllReduce("w").ok());
      const absl::Status status = places[rank].Finish();
      EXPECT_TRUE(status.ok()) << status;
    });
  });
  EXPECT_TRUE(ranks.transport(0).failure().ok());
}

// The devices are busy with something else for longer than a deadline: nobody is late.
TEST(NcclFailure, WhatCannotStartIsNotLate) {
  Ranks ranks(2);
  std::vector<Place> places = Places(ranks, "all", Iota(2));
  std::mutex mutex;
  std::condition_variable changed;
  bool released = false;
  for (Place& place : places) {
    place.stream->Enqueue([&] {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return released; });
      return absl::OkStatus();
    });
  }
  OnEachRank(3, [&](int i) {
    WhileBlocked([&] {
      if (i < 2) {
        EXPECT_TRUE(places[i].AllReduce("w").ok());
        const absl::Status status = places[i].Finish();
        EXPECT_TRUE(status.ok()) << status;
        return;
      }
      ranks.PassUntil(kDeadline * 3, [] { return false; });
      {
        const std::lock_guard<std::mutex> lock(mutex);
        released = true;
      }
      changed.notify_all();
    });
  });
}

TEST(NcclFailure, EveryRankTellsTheSameStory) {
  Ranks ranks(4);
  // Rank 3 never comes to "b", so rank 2 never comes to "a": both are waited for.
  std::vector<Place> a = Places(ranks, "a", {0, 1, 2});
  std::vector<Place> b = Places(ranks, "b", {2, 3});
  Outcomes(
      ranks, {0, 1, 2},
      [&](int i) { return i == 2 ? b[0].AllReduce("deep") : a[i].AllReduce("shallow"); },
      [&](int i) { return i == 2 ? b[0].Finish() : a[i].Finish(); }, kPastTheDeadline);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(Text(ranks.FailureOf(rank)), HasSubstr("for rank 3 in all-reduce of matrix 'deep'"))
        << "rank " << rank;
  }
  EXPECT_THAT(Text(a[0].communicator->status()),
              AllOf(HasSubstr("rank 2 waited"), HasSubstr("on communicator 'b'")));
}

// Case 23: three communicators in flight, one rank never posts: all are flagged before any is
// freed.
TEST(NcclFailure, Case23ThreeCommunicatorsInFlightEndTogether) {
  for (const LaunchOrder order : {LaunchOrder::kSerialized, LaunchOrder::kAuto}) {
    Ranks ranks(4, [&](NcclWorldOptions& options) { options.transport.launch_order = order; });
    const std::vector<std::vector<int>> groups = {{0, 1, 2, 3}, {0, 1, 2}, {1, 2, 3}};
    std::vector<std::vector<Place>> places;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      places.push_back(Places(ranks, absl::StrCat("g", g), groups[g]));
    }
    const auto mine = [&](int rank) {
      std::vector<Place*> found;
      for (std::vector<Place>& group : places) {
        for (Place& place : group) {
          if (place.communicator->world_ranks()[place.communicator->rank()] == rank) {
            found.push_back(&place);
          }
        }
      }
      return found;
    };
    Outcomes(
        ranks, {0, 1, 2},
        [&](int rank) {
          for (Place* place : mine(rank)) EXPECT_TRUE(place->AllReduce("w").ok());
          return absl::OkStatus();
        },
        [&](int rank) {
          absl::Status first;
          for (Place* place : mine(rank)) {
            const absl::Status status = place->Finish();
            EXPECT_FALSE(status.ok());
            // The first stream that ends finds every communicator of the rank flagged.
            for (const Place* other : mine(rank)) EXPECT_FALSE(other->communicator->status().ok());
            first.Update(status);
          }
          return first;
        },
        kPastTheDeadline);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_THAT(Text(ranks.FailureOf(rank)), HasSubstr("for rank 3 in all-reduce"));
      for (const Place* place : mine(rank)) EXPECT_FALSE(place->communicator->status().ok());
    }
    for (std::vector<Place>& group : places) group.clear();
  }
}

TEST(NcclFailure, AnAbortEndsAllRanksWithItsText) {
  Ranks ranks(3);
  std::vector<Place> places = Places(ranks, "all", Iota(3));
  const absl::Status cause = absl::DataLossError("gradient of 'blk.7' is not finite");
  const std::vector<absl::Status> ends = Outcomes(
      ranks, Iota(3),
      [&](int rank) {
        if (rank != 1) return places[rank].AllReduce("w");
        ranks.transport(1).Abort(cause);
        // Flagged when the call returns, and the first cause wins.
        EXPECT_FALSE(places[1].communicator->status().ok());
        ranks.transport(1).Abort(absl::CancelledError("a later cause"));
        return places[1].AllReduce("w");
      },
      [&](int rank) { return places[rank].Finish(); }, kBeforeTheDeadline);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ends[rank].code(), absl::StatusCode::kDataLoss) << ends[rank];
    EXPECT_THAT(Text(ends[rank]), HasSubstr("aborted: gradient of 'blk.7' is not finite"));
    const absl::Status story = ranks.FailureOf(rank);
    EXPECT_EQ(story.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(Text(story), HasSubstr("rank 1 aborted: gradient of 'blk.7'"));
    EXPECT_FALSE(ranks.transport(rank).CreateCommunicator("later", Iota(3)).ok());
  }
}

TEST(NcclFailure, AFailedStreamThatDoesNotComeFailsThePeers) {
  Ranks ranks(2);
  std::vector<Place> places = Places(ranks, "all", Iota(2));
  places[0].stream->Abort(absl::ResourceExhaustedError("no memory for NS"));
  const std::vector<absl::Status> ends = Outcomes(
      ranks, Iota(2), [&](int rank) { return places[rank].AllReduce("w"); },
      [&](int rank) { return places[rank].Finish(); }, kBeforeTheDeadline);
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end.code(), absl::StatusCode::kResourceExhausted) << end;
    EXPECT_THAT(Text(end), HasSubstr("no memory for NS"));
  }
  EXPECT_THAT(Text(places[1].communicator->status()),
              HasSubstr("rank 0 did not come to all-reduce of matrix 'w'"));
}

TEST(NcclFailure, ARankThatHasLeftIsNamedWithoutWaitingForTheDeadline) {
  Ranks ranks(3);
  std::vector<Place> places = Places(ranks, "all", Iota(3));
  const auto before = [&](int rank) { return places[rank].AllReduce("before"); };
  const auto finish = [&](int rank) { return places[rank].Finish(); };
  for (const absl::Status& end : Outcomes(ranks, Iota(3), before, finish, kBeforeTheDeadline)) {
    ASSERT_TRUE(end.ok()) << end;
  }
  places[2].communicator.reset();
  ranks.Destroy(2);
  const std::vector<absl::Status> ends = Outcomes(
      ranks, {0, 1}, [&](int rank) { return places[rank].AllReduce("after"); }, finish,
      kBeforeTheDeadline);
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
    EXPECT_THAT(Text(end),
                AllOf(HasSubstr("lost rank 2"), HasSubstr("left"), HasSubstr("'after'")));
  }
}

// The call has long returned: only the watching thread is there to see it.
TEST(NcclFailure, WhatNcclReportsLaterEndsTheWaitOfAll) {
  Ranks ranks(3);
  std::vector<Place> places = Places(ranks, "all", Iota(3));
  const std::vector<absl::Status> ends = Outcomes(
      ranks, {0, 1},
      [&](int rank) {
        const absl::Status issued = places[rank].AllReduce("w");
        if (rank == 1) fakes::FailCommunicator(1, "all", 0, ncclRemoteError);
        return issued;
      },
      [&](int rank) { return places[rank].Finish(); }, kBeforeTheDeadline);
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
    EXPECT_THAT(Text(end), HasSubstr("remote process exited"));
  }
  EXPECT_THAT(Text(ranks.FailureOf(2)), HasSubstr("rank 1 NCCL: a collective under way failed"));
}

TEST(NcclFailure, WhatNcclReportsOfItselfIsToldByAll) {
  Ranks ranks(3);
  std::vector<Place> places = Places(ranks, "all", Iota(3));
  fakes::FailCommunicator(1, "all", 0, ncclRemoteError);
  const std::vector<absl::Status> ends = Outcomes(
      ranks, Iota(3), [&](int rank) { return places[rank].AllReduce("w"); },
      [&](int rank) { return places[rank].Finish(); }, kBeforeTheDeadline);
  for (int rank = 0; rank < 3; ++rank) {
    const absl::Status story = ranks.FailureOf(rank);
    EXPECT_EQ(story.code(), absl::StatusCode::kUnavailable) << story;
    EXPECT_THAT(Text(story), HasSubstr("remote process exited"));
    EXPECT_FALSE(ends[rank].ok());
  }
}

// Its collectives never start, while its threads still answer: nobody can know more than that.
TEST(NcclFailure, ADeviceThatDoesNotGoOnIsTold) {
  Ranks ranks(3, [](NcclWorldOptions& options) { options.clean_end = false; });
  std::vector<Place> places = Places(ranks, "all", Iota(3));
  fakes::KillPeer(2);
  const std::vector<absl::Status> ends = Outcomes(
      ranks, Iota(3), [&](int rank) { return places[rank].AllReduce("w"); },
      [&](int rank) { return places[rank].Finish(); }, kPastTheDeadline);
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end.code(), absl::StatusCode::kDeadlineExceeded) << end;
    EXPECT_THAT(Text(end), HasSubstr("to which all ranks have come"));
  }
}

TEST(NcclFailure, MembersWhoseCollectivesDifferAllFail) {
  Ranks ranks(2, [](NcclWorldOptions& options) { options.clean_end = false; });
  std::vector<Place> places = Places(ranks, "all", Iota(2));
  const std::vector<absl::Status> ends = Outcomes(
      ranks, Iota(2),
      [&](int rank) {
        Place& place = places[rank];
        return place.communicator->Broadcast(*place.stream, place.data->data(), 64 + 64 * rank, 0,
                                             {"w", "test"});
      },
      [&](int rank) {
        // NCCL's own kernels would hang or mix up; the fake's end and report it.
        (void)places[rank].Finish();
        return ranks.FailureOf(rank);
      },
      kBeforeTheDeadline);
  for (const absl::Status& end : ends) EXPECT_FALSE(end.ok());
}

// A collective that was captured would meet its peers when the graph is launched, unseen by the
// watching thread, and keep NCCL from ever freeing the communicator.
TEST(NcclFailure, ACapturedStreamIsRefusedAndNothingElseSuffers) {
  Ranks ranks(1);
  std::vector<Place> places = Places(ranks, "alone", {0});
  auto* const stream = static_cast<cudaStream_t>(places[0].stream->native());
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const absl::Status refused = places[0].AllReduce("w");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(Text(refused), HasSubstr("is being captured"));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_TRUE(places[0].AllReduce("w").ok());
  EXPECT_TRUE(places[0].Finish().ok());
}

int WatchingThreads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream name(task.path() / "comm");
    std::string text;
    if (std::getline(name, text) && text == "weft watchdog") ++count;
  }
  return count;
}

// NCCL frees memory, which waits for the whole device: work that hangs there keeps it from
// returning, like graphs that hold its kernels do. The transport goes all the same.
TEST(NcclFailure, AnAbortFromWhichNcclDoesNotReturnIsLeftBehind) {
  Ranks ranks(2, [](NcclWorldOptions& options) { options.clean_end = false; });
  std::vector<Place> places = Places(ranks, "all", Iota(2));
  std::mutex mutex;
  std::condition_variable changed;
  bool released = false;
  const std::unique_ptr<Stream> stuck = ranks.device(0).CreateStream("stuck");
  stuck->Enqueue([&] {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return released; });
    return absl::OkStatus();
  });
  const absl::Status cause = absl::CancelledError("enough");
  std::atomic<bool> gone = false;
  std::thread leaving([&] {
    ranks.transport(0).Abort(cause);
    EXPECT_THAT(Text(places[0].communicator->status()), HasSubstr("aborted: enough"));
    places[0].communicator.reset();
    ranks.Destroy(0);
    gone = true;
  });
  EXPECT_TRUE(ranks.PassUntil(kPastTheDeadline, [&] { return gone.load(); }));
  EXPECT_EQ(WatchingThreads(), 2) << "rank 0's is still in NCCL";
  {
    const std::lock_guard<std::mutex> lock(mutex);
    released = true;
  }
  changed.notify_all();
  leaving.join();
  EXPECT_TRUE(ranks.PassUntil(kPastTheDeadline, [] { return WatchingThreads() == 1; }));
}

TEST(NcclFailure, TheCreationOfACommunicatorNamesWhoDidNotCome) {
  Ranks ranks(3);
  const std::vector<absl::Status> ends = Outcomes(
      ranks, {0, 1},
      [&](int rank) { return ranks.transport(rank).CreateCommunicator("all", Iota(3)).status(); },
      [&](int) { return absl::OkStatus(); }, kPastTheDeadline);
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Text(end), HasSubstr("waited 20s for rank 2 in its creation"));
  }
}

TEST(NcclFailure, LeavingDoesNotDisturbWhatTheOthersStillHaveToFinish) {
  for (int round = 0; round < 5; ++round) {
    Ranks ranks(4, [&](NcclWorldOptions& options) { options.fakes.seed = Seed() + round; });
    std::vector<Place> places = Places(ranks, "all", Iota(4));
    OnEachRank(4, [&](int rank) {
      WhileBlocked([&] {
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(places[rank].AllReduce("w").ok());
        const absl::Status status = places[rank].Finish();
        EXPECT_TRUE(status.ok()) << status;
        places[rank].communicator.reset();
        ranks.Destroy(rank);
      });
    });
  }
}

}  // namespace
}  // namespace weft::testing
