// The store as a directory and as a server: one contract; and what is the server's alone.
#include "collectives/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/store_wire.h"
#include "tests/support/temporary_folder.h"
#include "weft/device.h"
#include "weft/store_server.h"
#include "weft/transport.h"

namespace weft::collectives {
namespace {

using ::testing::HasSubstr;

// A place where stores meet.
class Place {
 public:
  explicit Place(bool served) {
    if (!served) return;
    auto started = StoreServer::Start("127.0.0.1", 0);
    EXPECT_TRUE(started.ok()) << started.status();
    if (started.ok()) server_ = *std::move(started);
  }
  std::string name() const { return server_ ? server_->address() : folder_.path(); }
  void End() { server_.reset(); }

 private:
  const testing::TemporaryFolder folder_;
  std::unique_ptr<StoreServer> server_;
};

class StoreContract : public ::testing::TestWithParam<bool> {
 protected:
  Place place{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Kinds, StoreContract, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Server" : "Directory"; });

TEST_P(StoreContract, WhatOnePostsAllRead) {
  Store one(place.name());
  Store other(place.name());
  ASSERT_TRUE(one.Check().ok());
  EXPECT_EQ(other.Read("a"), std::nullopt);
  const std::string bytes("\0\n\xff whole", 9);
  ASSERT_TRUE(one.Post("a", bytes).ok());
  // A reader may have looked a moment ago; it sees the entry before long.
  std::optional<std::string> read;
  while (!(read = other.Read("a"))) std::this_thread::yield();
  EXPECT_EQ(*read, bytes);
  EXPECT_EQ(one.Read("a"), bytes);
  ASSERT_TRUE(other.Post("empty", "").ok());
  while (!(read = one.Read("empty"))) std::this_thread::yield();
  EXPECT_EQ(*read, "");
}

TEST_P(StoreContract, NobodysEntryIsReplaced) {
  constexpr int kThreads = 8;
  std::atomic<int> taken{0}, refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const absl::Status posted = Store(place.name()).Post("name", std::to_string(i));
      if (posted.ok()) ++taken;
      if (absl::IsAlreadyExists(posted)) ++refused;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(refused, kThreads - 1);
}

TEST_P(StoreContract, LongContentsArriveWhole) {
  std::string contents(3 << 20, 'x');
  for (std::size_t i = 0; i < contents.size(); i += 4099) contents[i] = static_cast<char>(i);
  Store store(place.name());
  ASSERT_TRUE(store.Post("long", contents).ok());
  EXPECT_TRUE(Store(place.name()).Read("long") == contents);
}

TEST(StoreServer, WhoDoesNotKnowTheSecretSeesNothing) {
  Place place(true);
  Store known(place.name());
  ASSERT_TRUE(known.Post("a", "b").ok());
  const std::string address = place.name().substr(0, place.name().rfind('/'));
  Store stranger(address + "/guess");
  EXPECT_EQ(stranger.Read("a"), std::nullopt);
  EXPECT_TRUE(absl::IsUnavailable(stranger.Post("c", "d")));
  EXPECT_EQ(known.Read("c"), std::nullopt);
  EXPECT_THAT(known.described(), ::testing::Not(HasSubstr(place.name())));
}

TEST(StoreServer, AfterItsEndARankSeesItsOwnEntriesAlone) {
  Place place(true);
  Store one(place.name());
  Store other(place.name());
  ASSERT_TRUE(one.Post("before", "1").ok());
  ASSERT_TRUE(other.Post("others", "2").ok());
  place.End();
  EXPECT_TRUE(absl::IsUnavailable(one.Post("after", "3")));
  EXPECT_EQ(one.Read("after"), "3");
  EXPECT_EQ(other.Read("after"), std::nullopt);
}

TEST(StoreServer, BadPlacesAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(StoreServer::Start("127.0.0.1", 70000).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(StoreServer::Start("no such host", 0).status()));
  for (const char* const place :
       {"tcp://", "tcp://host", "tcp://host:0", "tcp://host:70000", "tcp://:80", "tcp://host:x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Store(place).Check())) << place;
  }
  const auto address = ParseStoreAddress("tcp://[::1]:80/word");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "::1");
  EXPECT_EQ(address->port, 80);
  EXPECT_EQ(address->secret, "word");
}

// Ranks of gloo that meet in a server; what `rank` does with the transport is its outcome.
std::vector<absl::Status> RunRanks(int ranks, const std::string& store,
                                   const std::function<absl::Status(Transport&)>& rank) {
  std::vector<absl::Status> outcomes(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      GlooTransportOptions options;
      options.rank = r;
      options.size = ranks;
      options.store = store;
      options.deadline = absl::Seconds(60);
      auto transport = CreateGlooTransport(options);
      outcomes[r] = transport.ok() ? rank(**transport) : transport.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

absl::Status Sum(Transport& transport) {
  auto device = CreateHostDevice();
  if (!device.ok()) return device.status();
  const auto stream = (*device)->CreateStream("s");
  auto group = transport.CreateCommunicator("all", {0, 1, 2});
  if (!group.ok()) return group.status();
  float value = 1.0f + static_cast<float>(transport.rank());
  const absl::Status enqueued = (*group)->AllReduce(*stream, &value, &value, 1, DType::kF32,
                                                    ReduceOp::kSum, {"value", "sum"});
  if (!enqueued.ok()) return enqueued;
  const absl::Status done = stream->Synchronize(absl::Seconds(60));
  EXPECT_TRUE(!done.ok() || value == 6.0f) << value;
  return done;
}

TEST(StoreServer, RanksMeetInIt) {
  Place place(true);
  for (const absl::Status& outcome : RunRanks(3, place.name(), Sum)) {
    EXPECT_TRUE(outcome.ok()) << outcome;
  }
  // Another run needs another one.
  for (const absl::Status& outcome : RunRanks(3, place.name(), Sum)) {
    EXPECT_TRUE(absl::IsFailedPrecondition(outcome)) << outcome;
  }
}

TEST(StoreServer, RanksTellOneStoryOfAnAbort) {
  Place place(true);
  const std::vector<absl::Status> outcomes =
      RunRanks(3, place.name(), [](Transport& transport) -> absl::Status {
        if (transport.rank() != 1) return Sum(transport);
        transport.Abort(absl::DataLossError("the disk is gone"));
        return absl::OkStatus();
      });
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(absl::IsDataLoss(outcomes[rank])) << outcomes[rank];
    EXPECT_THAT(outcomes[rank].message(), HasSubstr("the disk is gone"));
  }
}

}  // namespace
}  // namespace weft::collectives
