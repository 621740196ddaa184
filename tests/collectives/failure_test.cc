// What every transport promises when something goes wrong: an error on every rank, within the
// deadline, that names who and where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/collectives/world.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// One rank's communicator with a stream and a vector to reduce.
struct Place {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Stream> stream;
  std::vector<float> data = std::vector<float>(64, 1.0f);

  absl::Status AllReduce(const char* matrix) {
    return communicator->AllReduce(*stream, data.data(), data.data(),
                                   static_cast<std::int64_t>(data.size()), DType::kF32,
                                   ReduceOp::kSum, {matrix, "test"});
  }
  absl::Status Finish() { return stream->Synchronize(absl::Minutes(5)); }
};

std::vector<Place> Places(World& world, const std::string& name, const std::vector<int>& ranks) {
  std::vector<Place> places(ranks.size());
  std::vector<std::unique_ptr<Communicator>> communicators = world.Create(name, ranks);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    places[i].communicator = std::move(communicators[i]);
    places[i].stream = world.NewStream(name);
  }
  return places;
}

class Failure : public ::testing::TestWithParam<std::string> {
 protected:
  // Long beside what the ranks of a busy machine come apart by.
  static constexpr absl::Duration kShort = absl::Seconds(2);
};

TEST_P(Failure, ARankThatNeverComesIsNamedOnEveryOther) {
  World world(GetParam(), 4, kShort);
  std::vector<Place> places = Places(world, "inter 1", Iota(4));
  std::vector<absl::Status> first(4);
  std::vector<absl::Status> story(4);
  OnEachRank(3, [&](int rank) {
    ASSERT_TRUE(places[rank].AllReduce("blk.0.wq").ok());
    first[rank] = places[rank].Finish();
    story[rank] = world.transport(rank).failure();
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(first[rank].code(), absl::StatusCode::kDeadlineExceeded) << first[rank];
    EXPECT_THAT(Text(first[rank]),
                AllOf(HasSubstr(absl::StrCat("communicator 'inter 1' (rank ", rank, "):")),
                      HasSubstr("waited 2s for rank 3 in all-reduce of matrix 'blk.0.wq'")));
    EXPECT_EQ(places[rank].communicator->status(), first[rank]);
    EXPECT_THAT(Text(story[rank]), HasSubstr("for rank 3 in all-reduce of matrix 'blk.0.wq'"));
    // Dead: the same status at once, and nothing is enqueued.
    EXPECT_EQ(places[rank].AllReduce("blk.1.wq"), first[rank]);
  }
}

TEST_P(Failure, EveryRankTellsTheSameStory) {
  World world(GetParam(), 4, kShort);
  // Rank 3 never comes to "b", so rank 2 never comes to "a": both are waited for.
  std::vector<Place> a = Places(world, "a", {0, 1, 2});
  std::vector<Place> b = Places(world, "b", {2, 3});
  std::vector<absl::Status> story(3);
  OnEachRank(3, [&](int rank) {
    if (rank == 2) {
      ASSERT_TRUE(b[0].AllReduce("deep").ok());
      EXPECT_EQ(b[0].Finish().code(), absl::StatusCode::kDeadlineExceeded);
    } else {
      ASSERT_TRUE(a[rank].AllReduce("shallow").ok());
      EXPECT_FALSE(a[rank].Finish().ok());
    }
    story[rank] = world.transport(rank).failure();
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(Text(story[rank]), HasSubstr("for rank 3 in all-reduce of matrix 'deep'"))
        << "rank " << rank;
  }
}

TEST_P(Failure, DifferentArgumentsAreRefusedOnEveryMemberWithBothNamed) {
  struct Case {
    std::string first, second;
    std::function<absl::Status(Place&, bool odd)> call;
  };
  const OpTag tag{"w", "test"};
  const std::vector<Case> cases = {
      {"all-reduce of 64 f32 (sum)", "all-reduce of 32 f32 (sum)",
       [&](Place& p, bool odd) {
         return p.communicator->AllReduce(*p.stream, p.data.data(), p.data.data(), odd ? 32 : 64,
                                          DType::kF32, ReduceOp::kSum, tag);
       }},
      {"all-reduce of 64 f32 (sum)", "all-reduce of 64 bf16 (sum)",
       [&](Place& p, bool odd) {
         return p.communicator->AllReduce(*p.stream, p.data.data(), p.data.data(), 64,
                                          odd ? DType::kBF16 : DType::kF32, ReduceOp::kSum, tag);
       }},
      {"reduce of 64 f32 (sum) with root 0", "reduce of 64 f32 (max) with root 0",
       [&](Place& p, bool odd) {
         return p.communicator->Reduce(*p.stream, p.data.data(), p.data.data(), 64, DType::kF32,
                                       odd ? ReduceOp::kMax : ReduceOp::kSum, 0, tag);
       }},
      {"broadcast of 256 bytes with root 0", "broadcast of 256 bytes with root 1",
       [&](Place& p, bool odd) {
         return p.communicator->Broadcast(*p.stream, p.data.data(), 256, odd ? 1 : 0, tag);
       }},
      {"broadcast of 256 bytes with root 0", "barrier",
       [&](Place& p, bool odd) {
         return odd ? p.communicator->Barrier(*p.stream, tag)
                    : p.communicator->Broadcast(*p.stream, p.data.data(), 256, 0, tag);
       }},
      {"scatter of 8+16+8 bytes with root 0", "scatter of 16+8+8 bytes with root 0",
       [&](Place& p, bool odd) {
         const std::vector<std::int64_t> bytes =
             odd ? std::vector<std::int64_t>{16, 8, 8} : std::vector<std::int64_t>{8, 16, 8};
         return p.communicator->ScatterV(*p.stream, p.data.data(), p.data.data() + 32, bytes, 0,
                                         tag);
       }},
  };
  for (const Case& c : cases) {
    World world(GetParam(), 3);
    std::vector<Place> places = Places(world, "all", Iota(3));
    OnEachRank(3, [&](int rank) {
      const absl::Status issued = c.call(places[rank], rank == 2);
      ASSERT_TRUE(issued.ok()) << issued;
      const absl::Status status = places[rank].Finish();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(Text(status), AllOf(HasSubstr("rank 0 came to"), HasSubstr("rank 2"),
                                      HasSubstr(c.first), HasSubstr(c.second)));
      EXPECT_FALSE(world.transport(rank).failure().ok());
    });
  }
}

TEST_P(Failure, MembersThatDisagreeAboutAJoinedOneAreTold) {
  World world(GetParam(), 3);
  std::vector<Place> places = Places(world, "all", Iota(3));
  OnEachRank(3, [&](int rank) {
    Place& p = places[rank];
    ASSERT_TRUE(p.communicator->GroupStart().ok());
    ASSERT_TRUE(p.communicator->Broadcast(*p.stream, p.data.data(), 16, 0, {"a", "test"}).ok());
    ASSERT_TRUE(p.communicator
                    ->Broadcast(*p.stream, p.data.data() + 32, 16, rank == 1 ? 0 : 1, {"b", "test"})
                    .ok());
    ASSERT_TRUE(p.communicator->GroupEnd().ok());
    const absl::Status end = p.Finish();
    EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument) << end;
    EXPECT_THAT(Text(end), HasSubstr("disagree"));
  });
}

TEST_P(Failure, AnAbortWakesTheWaitingAndItsTextReachesThePeers) {
  World world(GetParam(), 3);
  std::vector<Place> places = Places(world, "all", Iota(3));
  const absl::Status cause = absl::DataLossError("gradient of 'blk.7' is not finite");
  OnEachRank(3, [&](int rank) {
    if (rank == 1) {
      // Ranks 0 and 2 wait for this one; it aborts instead of coming.
      world.transport(1).Abort(cause);
      world.transport(1).Abort(absl::CancelledError("a later cause"));
      EXPECT_THAT(Text(places[1].AllReduce("w")), HasSubstr("blk.7"));
    } else {
      const absl::Status issued = places[rank].AllReduce("w");
      const absl::Status status = issued.ok() ? places[rank].Finish() : issued;
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_THAT(Text(status), HasSubstr("rank 1 aborted: gradient of 'blk.7' is not finite"));
    }
    const absl::Status story = world.transport(rank).failure();
    EXPECT_THAT(Text(story), HasSubstr("blk.7"));
    EXPECT_EQ(story.code(), absl::StatusCode::kDataLoss);
  });
}

TEST_P(Failure, AnAbortEndsThisRanksOwnWait) {
  World world(GetParam(), 2);
  std::vector<Place> places = Places(world, "all", Iota(2));
  std::unique_ptr<Stream> other = world.NewStream("other");
  ASSERT_TRUE(places[0].AllReduce("w").ok());
  other->Enqueue([&] {
    world.transport(0).Abort(absl::CancelledError("enough"));
    return absl::OkStatus();
  });
  EXPECT_TRUE(other->Synchronize(absl::Minutes(5)).ok());
  EXPECT_EQ(places[0].Finish().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Text(places[0].communicator->status()), HasSubstr("aborted: enough"));
  EXPECT_FALSE(world.transport(0).CreateCommunicator("later", {0, 1}).ok());
}

TEST_P(Failure, ARankThatHasLeftIsNamed) {
  World world(GetParam(), 3);
  std::vector<Place> places = Places(world, "all", Iota(3));
  OnEachRank(3, [&](int rank) {
    ASSERT_TRUE(places[rank].AllReduce("before").ok());
    EXPECT_TRUE(places[rank].Finish().ok());
    if (rank == 2) {
      places[rank].communicator.reset();
      world.Destroy(rank);
      return;
    }
    const absl::Status issued = places[rank].AllReduce("after");
    const absl::Status status = issued.ok() ? places[rank].Finish() : issued;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("rank 2"), HasSubstr("left"), HasSubstr("'after'")));
  });
}

TEST_P(Failure, LeavingDoesNotDisturbWhatTheOthersStillHaveToFinish) {
  // The last barrier lets every rank go at its own time; none of them may see an error.
  for (int round = 0; round < 5; ++round) {
    World world(GetParam(), 4);
    std::vector<Place> places = Places(world, "all", Iota(4));
    OnEachRank(4, [&](int rank) {
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(places[rank].AllReduce("w").ok());
      const absl::Status status = places[rank].Finish();
      EXPECT_TRUE(status.ok()) << status;
      places[rank].communicator.reset();
      world.Destroy(rank);
    });
  }
}

TEST_P(Failure, AnOperationSkippedByAFailedStreamFailsThePeers) {
  World world(GetParam(), 2);
  std::vector<Place> places = Places(world, "all", Iota(2));
  OnEachRank(2, [&](int rank) {
    if (rank == 0) {
      places[0].stream->Enqueue([] { return absl::ResourceExhaustedError("no memory for NS"); });
    }
    const absl::Status issued = places[rank].AllReduce("w");
    const absl::Status status = issued.ok() ? places[rank].Finish() : issued;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(Text(status), HasSubstr("no memory for NS"));
  });
  EXPECT_THAT(Text(places[1].communicator->status()), HasSubstr("rank 0 did not come to"));
}

TEST_P(Failure, AnOperationBehindOneWhoseStreamIsStuckEndsToo) {
  World world(GetParam(), 2, kShort);
  std::vector<Place> places = Places(world, "all", Iota(2));
  std::unique_ptr<Stream> stuck = world.NewStream("stuck");
  std::mutex mutex;
  std::condition_variable changed;
  bool released = false;
  stuck->Enqueue([&] {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return released; });
    return absl::OkStatus();
  });
  ASSERT_TRUE(places[0].communicator->Barrier(*stuck, {"first", "test"}).ok());
  ASSERT_TRUE(places[0].AllReduce("second").ok());
  const absl::Status status = places[0].Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(Text(status), HasSubstr("for its own earlier operation before all-reduce of matrix "
                                      "'second'"));
  {
    const std::lock_guard<std::mutex> lock(mutex);
    released = true;
  }
  changed.notify_all();
  EXPECT_EQ(stuck->Synchronize(absl::Minutes(5)), status);
}

TEST_P(Failure, ThreeCommunicatorsInFlightAllEndWhenOneRankNeverPosts) {
  World world(GetParam(), 4, kShort);
  const std::vector<std::vector<int>> groups = {{0, 1, 2, 3}, {0, 1, 2}, {1, 2, 3}};
  std::vector<std::vector<Place>> places;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    places.push_back(Places(world, absl::StrCat("g", g), groups[g]));
  }
  std::atomic<int> flagged{0};
  OnEachRank(4, [&](int rank) {
    if (rank == 3) return;  // never posts
    std::vector<Place*> mine;
    for (std::vector<Place>& group : places) {
      for (Place& place : group) {
        if (place.communicator->world_ranks()[place.communicator->rank()] == rank) {
          mine.push_back(&place);
        }
      }
    }
    std::vector<absl::Status> issued;
    for (Place* place : mine) issued.push_back(place->AllReduce("w"));
    // What a runtime does: the first failure ends all communicators of the rank.
    absl::Status first;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const absl::Status status = issued[i].ok() ? mine[i]->Finish() : issued[i];
      if (first.ok() && !status.ok()) {
        first = status;
        world.transport(rank).Abort(world.transport(rank).failure());
      }
    }
    EXPECT_FALSE(first.ok());
    for (Place* place : mine) flagged += place->communicator->status().ok() ? 0 : 1;
    EXPECT_THAT(Text(world.transport(rank).failure()), HasSubstr("rank 3"));
  });
  EXPECT_EQ(flagged, 3 + 3 + 2);
  for (std::vector<Place>& group : places) group.clear();  // all flagged, now all freed
}

TEST_P(Failure, TheCreationOfACommunicatorNamesWhoDidNotCome) {
  World world(GetParam(), 3, kShort);
  OnEachRank(2, [&](int rank) {
    const auto created = world.transport(rank).CreateCommunicator("all", {0, 1, 2});
    EXPECT_EQ(created.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Text(created.status()), HasSubstr("waited 2s for rank 2 in its creation"));
  });
}

TEST_P(Failure, MembersThatDisagreeOnTheGroupAreToldSo) {
  World world(GetParam(), 3, absl::Seconds(20));
  OnEachRank(2, [&](int rank) {
    const std::vector<int> ranks = rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2};
    const auto created = world.transport(rank).CreateCommunicator("mixed", ranks);
    EXPECT_EQ(created.status().code(), absl::StatusCode::kInvalidArgument) << created.status();
    EXPECT_THAT(Text(created.status()),
                AllOf(HasSubstr("'mixed'"), HasSubstr("{0, 1}"), HasSubstr("{0, 1, 2}")));
  });
}

TEST_P(Failure, BadArgumentsAreReturnedAtOnceAndEnqueueNothing) {
  World world(GetParam(), 2);
  std::vector<Place> places = Places(world, "all", Iota(2));
  OnEachRank(2, [&](int rank) {
    Place& p = places[rank];
    Communicator& c = *p.communicator;
    float* data = p.data.data();
    const OpTag tag{"w", "test"};
    const std::vector<absl::Status> refused = {
        c.AllReduce(*p.stream, data, data, -1, DType::kF32, ReduceOp::kSum, tag),
        c.AllReduce(*p.stream, data, nullptr, 4, DType::kF32, ReduceOp::kSum, tag),
        c.AllReduce(*p.stream, data, data + 1, 4, DType::kF32, ReduceOp::kSum, tag),
        c.Reduce(*p.stream, data, data, 4, DType::kF32, ReduceOp::kSum, 2, tag),
        c.Broadcast(*p.stream, data, 4, -1, tag),
        c.Broadcast(*p.stream, nullptr, 4, 0, tag),
        c.AllGatherV(*p.stream, data, data + 8, {4, 4, 4}, tag),
        c.AllGatherV(*p.stream, data, data + 1, {8, 8}, tag),
        c.ReduceScatterV(*p.stream, data, data, {4, 4}, DType::kF32, ReduceOp::kSum, tag),
        c.AllGatherV(*p.stream, data, data, {std::int64_t{1} << 62, std::int64_t{1} << 62}, tag),
    };
    for (std::size_t i = 0; i < refused.size(); ++i) {
      EXPECT_EQ(refused[i].code(), absl::StatusCode::kInvalidArgument) << "call " << i;
      EXPECT_THAT(Text(refused[i]), HasSubstr("matrix 'w'")) << "call " << i;
    }
    ASSERT_TRUE(p.AllReduce("w").ok());
    EXPECT_TRUE(p.Finish().ok());
    EXPECT_EQ(p.data[0], 2.0f);
  });
}

TEST_P(Failure, BadGroupsAreRefused) {
  World world(GetParam(), 2);
  Transport& transport = world.transport(0);
  for (const std::vector<int>& ranks : {std::vector<int>{}, {1}, {0, 0}, {1, 0}, {0, 2}, {-1, 0}}) {
    EXPECT_EQ(transport.CreateCommunicator("bad", ranks).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(transport.CreateCommunicator("", {0}).ok());
  EXPECT_TRUE(transport.CreateCommunicator("alone", {0}).ok());
  EXPECT_THAT(Text(transport.CreateCommunicator("alone", {0}).status()),
              HasSubstr("already had a communicator named 'alone'"));
}

INSTANTIATE_TEST_SUITE_P(Transports, Failure, ::testing::Values("local", "gloo"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace weft::testing
