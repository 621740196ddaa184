// The local transport on a clock that the test moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/collectives/world.h"
#include "weft/clock.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kSecond = 1'000'000'000;

// A manual clock that tells how many threads wait for a given time.
class WatchedClock final : public Clock {
 public:
  Nanos Now() const override { return clock_.Now(); }

  bool WaitUntil(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
                 Nanos deadline) override {
    Count(deadline, 1);
    const bool before = clock_.WaitUntil(cv, lock, deadline);
    Count(deadline, -1);
    return before;
  }

  void Advance(Nanos delta) { clock_.Advance(delta); }

  // Blocks until `threads` threads wait until exactly `deadline`. False, after a minute of real
  // time, when that does not happen.
  bool AwaitWaiters(Nanos deadline, int threads) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1),
                             [&] { return waiters_[deadline] >= threads; });
  }

 private:
  void Count(Nanos deadline, int change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiters_[deadline] += change;
    changed_.notify_all();
  }

  ManualClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Nanos, int> waiters_;
};

class LocalClock : public ::testing::Test {
 protected:
  void Build(const Topology& topology, absl::Duration deadline) {
    LocalTransportOptions options;
    options.topology = topology;
    options.deadline = deadline;
    options.clock = &clock_;
    world_ = std::make_unique<World>("local", options);
  }

  struct Running {
    std::vector<char> buffer;
    std::atomic<Nanos> ended{-1};
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<Stream> stream;
  };

  // One member's broadcast, on a stream of its own.
  void Start(Running& running, std::int64_t bytes) {
    running.stream = world_->NewStream("s");
    running.buffer.resize(bytes);
    ASSERT_TRUE(
        running.communicator->Broadcast(*running.stream, running.buffer.data(), bytes, 0, {"w", ""})
            .ok());
    running.stream->Enqueue([this, &running] {
      running.ended = clock_.Now();
      return absl::OkStatus();
    });
  }

  std::vector<std::unique_ptr<Running>> Members(const std::string& name,
                                                const std::vector<int>& ranks) {
    std::vector<std::unique_ptr<Running>> members;
    for (auto& communicator : world_->Create(name, ranks)) {
      members.push_back(std::make_unique<Running>());
      members.back()->communicator = std::move(communicator);
    }
    return members;
  }

  WatchedClock clock_;
  std::unique_ptr<World> world_;
};

// 10 us + 4 ns per byte between nodes: 1000 bytes over two ranks take 14 us.
Topology InterLinks(int nics) {
  return {{2, 2}, {}, {.latency_us = 10, .gigabytes_per_second = 0.25}, nics};
}

TEST_F(LocalClock, DisjointInterGroupsTransferAtTheSameTime) {
  Build(InterLinks(0), absl::Minutes(1));
  auto a = Members("inter 0", {0, 2});
  auto b = Members("inter 1", {1, 3});
  for (auto* group : {&a, &b}) {
    for (auto& member : *group) Start(*member, 1000);
  }
  ASSERT_TRUE(clock_.AwaitWaiters(14000, 4));
  clock_.Advance(14000);
  for (auto* group : {&a, &b}) {
    for (auto& member : *group) {
      EXPECT_TRUE(member->stream->Synchronize(absl::Minutes(1)).ok());
      EXPECT_EQ(member->ended, 14000);
    }
  }
}

TEST_F(LocalClock, GroupsThatShareANicTakeTurns) {
  Build(InterLinks(1), absl::Minutes(1));
  auto a = Members("inter 0", {0, 2});
  auto b = Members("inter 1", {1, 3});
  for (auto& member : a) Start(*member, 1000);
  ASSERT_TRUE(clock_.AwaitWaiters(14000, 2));
  for (auto& member : b) Start(*member, 1000);
  ASSERT_TRUE(clock_.AwaitWaiters(28000, 2));
  clock_.Advance(14000);
  for (auto& member : a) {
    EXPECT_TRUE(member->stream->Synchronize(absl::Minutes(1)).ok());
    EXPECT_EQ(member->ended, 14000);
  }
  for (auto& member : b) EXPECT_EQ(member->ended, -1);
  clock_.Advance(14000);
  for (auto& member : b) {
    EXPECT_TRUE(member->stream->Synchronize(absl::Minutes(1)).ok());
    EXPECT_EQ(member->ended, 28000);
  }
}

TEST_F(LocalClock, AnAbortEndsAnEmulatedWait) {
  Build(InterLinks(0), absl::Minutes(1));
  auto a = Members("inter 0", {0, 2});
  for (auto& member : a) Start(*member, 1000);
  ASSERT_TRUE(clock_.AwaitWaiters(14000, 2));
  world_->transport(2).Abort(absl::CancelledError("enough"));
  for (auto& member : a) {
    EXPECT_EQ(member->stream->Synchronize(absl::Minutes(1)).code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(member->ended, -1);
  }
}

TEST_F(LocalClock, TheDeadlineIsThatOfTheClock) {
  Topology topology;
  topology.grid = {1, 4};
  Build(topology, absl::Seconds(2));
  auto all = Members("all", {0, 1, 2, 3});
  for (int rank = 0; rank < 3; ++rank) Start(*all[rank], 1000);
  ASSERT_TRUE(clock_.AwaitWaiters(2 * kSecond, 3));
  clock_.Advance(2 * kSecond);
  for (int rank = 0; rank < 3; ++rank) {
    const absl::Status status = all[rank]->stream->Synchronize(absl::Minutes(1));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("waited 2s for rank 3 in broadcast of matrix 'w'"));
  }
}

TEST_F(LocalClock, EmulatedTransfersDoNotCountAgainstTheDeadline) {
  Topology topology = InterLinks(0);
  topology.inter.latency_us = 10e6;  // a transfer of ten seconds
  topology.inter.gigabytes_per_second = 0;
  Build(topology, absl::Seconds(2));
  auto slow = Members("inter 0", {0, 2});
  auto fast = Members("intra 0", {0, 1});
  for (auto& member : slow) Start(*member, 8);
  ASSERT_TRUE(clock_.AwaitWaiters(10 * kSecond, 2));
  // Rank 1 waits for rank 0, whose turn comes after its transfer.
  Start(*fast[1], 8);
  ASSERT_TRUE(clock_.AwaitWaiters(12 * kSecond, 1));
  clock_.Advance(10 * kSecond);
  Start(*fast[0], 8);
  for (auto* group : {&slow, &fast}) {
    for (auto& member : *group) EXPECT_TRUE(member->stream->Synchronize(absl::Minutes(1)).ok());
  }
}

TEST_F(LocalClock, ATurnBehindAnEmulatedTransferDoesNotCountAgainstTheDeadline) {
  Topology topology = InterLinks(0);
  topology.inter.latency_us = 10e6;
  topology.inter.gigabytes_per_second = 0;
  Build(topology, absl::Seconds(2));
  auto members = Members("inter 0", {0, 2});
  for (auto& member : members) Start(*member, 8);
  ASSERT_TRUE(clock_.AwaitWaiters(10 * kSecond, 2));
  std::vector<std::unique_ptr<Stream>> others;
  for (auto& member : members) {
    others.push_back(world_->NewStream("other"));
    ASSERT_TRUE(member->communicator->Barrier(*others.back(), {"", ""}).ok());
  }
  ASSERT_TRUE(clock_.AwaitWaiters(12 * kSecond, 2));
  clock_.Advance(10 * kSecond);
  for (auto& member : members) EXPECT_TRUE(member->stream->Synchronize(absl::Minutes(1)).ok());
  ASSERT_TRUE(clock_.AwaitWaiters(20 * kSecond, 2));
  clock_.Advance(10 * kSecond);
  for (auto& other : others) EXPECT_TRUE(other->Synchronize(absl::Minutes(1)).ok());
}

TEST(LocalTransports, BadOptionsAreNamed) {
  const auto refused = [](auto change, const char* what) {
    LocalTransportOptions options;
    change(options);
    const auto created = CreateLocalTransports(options);
    EXPECT_EQ(created.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(created.status().message()), HasSubstr(what));
  };
  refused([](auto& o) { o.topology.grid.nodes = 0; }, "nodes is 0");
  refused([](auto& o) { o.topology.grid.ranks_per_node = -1; }, "ranks_per_node is -1");
  refused([](auto& o) { o.topology.grid = {65536, 65537}; }, "65536 nodes of 65537 ranks");
  refused([](auto& o) { o.topology.nics_per_node = -2; }, "nics_per_node is -2");
  refused([](auto& o) { o.topology.inter.latency_us = -3; }, "inter.latency_us is -3");
  refused([](auto& o) { o.topology.intra.gigabytes_per_second = -1; },
          "intra.gigabytes_per_second is -1");
  refused([](auto& o) { o.deadline = absl::ZeroDuration(); }, "deadline is 0");
}

}  // namespace
}  // namespace weft::testing
