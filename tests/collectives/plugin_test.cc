// How a transport plug-in is found, and how its failures are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "tests/collectives/world.h"
#include "tests/support/temporary_folder.h"
#include "weft/c/plugin_v1.h"
#include "weft/plugin_transport.h"

// What a program shows that brings its own plug-in, of a version that does not exist.
extern "C" __attribute__((visibility("default"))) const weftTransportPlugin_v1_t weftTransport_v1;
const weftTransportPlugin_v1_t weftTransport_v1 = {sizeof(weftTransportPlugin_v1_t),
                                                   WEFT_CONFIG_MAGIC,
                                                   7,
                                                   "of the future",
                                                   nullptr,
                                                   nullptr,
                                                   nullptr,
                                                   nullptr,
                                                   nullptr,
                                                   nullptr,
                                                   nullptr,
                                                   nullptr};

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// The variable, for one test.
class Named {
 public:
  explicit Named(const std::string& value) { ::setenv("WEFT_TRANSPORT_PLUGIN", value.c_str(), 1); }
  ~Named() { ::setenv("WEFT_TRANSPORT_PLUGIN", WEFT_SHM_TRANSPORT, 1); }
};

absl::Status CreateAlone() {
  const TemporaryFolder store;
  return CreatePluginTransport({.rank = 0, .size = 1, .store = store.path()}).status();
}

TEST(TransportPlugin, IsFoundByTheVariable) {
  EXPECT_TRUE(CreateAlone().ok()) << CreateAlone();
  {
    const Named none("none");
    EXPECT_TRUE(absl::IsNotFound(CreateAlone()));
    EXPECT_THAT(CreateAlone().message(), HasSubstr("WEFT_TRANSPORT_PLUGIN is none"));
  }
  const Named missing("of-nobody");
  EXPECT_TRUE(absl::IsNotFound(CreateAlone()));
  EXPECT_THAT(CreateAlone().message(), HasSubstr("libweft-transport-of-nobody.so"));
}

TEST(TransportPlugin, OfAnotherVersionIsRefused) {
  const Named program("STATIC_PLUGIN");
  const absl::Status status = CreateAlone();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("version 7"));
}

TEST(TransportPlugin, BadOptionsAreRefusedBeforeItIsAsked) {
  EXPECT_TRUE(absl::IsInvalidArgument(
      CreatePluginTransport({.rank = 2, .size = 2, .store = "x"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      CreatePluginTransport({.rank = 0, .size = 1, .store = "x", .deadline = absl::ZeroDuration()})
          .status()));
}

TEST(TransportPlugin, ItsOwnWordsAreTold) {
  const absl::Status status =
      CreatePluginTransport({.rank = 0, .size = 1, .store = "/no/such/folder"}).status();
  EXPECT_THAT(status.message(), HasSubstr("transport plug-in 'shm' on rank 0: cannot open"));
}

TEST(TransportPlugin, AnAbortIsOneStoryOnAllRanks) {
  World world("plugin", 3);
  EXPECT_EQ(world.transport(0).kind(), "shm");
  auto communicators = world.Create("all", Iota(3));
  OnEachRank(3, [&](int rank) {
    if (rank == 1) {
      world.transport(1).Abort(absl::DataLossError("the disk is gone"));
      EXPECT_FALSE(communicators[1]->status().ok());
      return;
    }
    const auto stream = world.NewStream("s", rank);
    ASSERT_TRUE(communicators[rank]->Barrier(*stream, {"m", "s"}).ok());
    const absl::Status status = stream->Synchronize(absl::Minutes(1));
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("communicator 'all' (rank " + std::to_string(rank) +
                                            "): rank 1 aborted: the disk is gone"));
    EXPECT_TRUE(absl::IsDataLoss(world.transport(rank).failure()));
  });
}

TEST(TransportPlugin, WhoDoesNotComeIsNamed) {
  World world("plugin", 3, absl::Milliseconds(200));
  auto communicators = world.Create("all", Iota(3));
  OnEachRank(3, [&](int rank) {
    if (rank == 2) return;
    const auto stream = world.NewStream("s", rank);
    ASSERT_TRUE(communicators[rank]->Barrier(*stream, {"m", "s"}).ok());
    const absl::Status status = stream->Synchronize(absl::Minutes(1));
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("waited 0.2s for rank 2 in barrier"));
    EXPECT_EQ(communicators[rank]->status(), status);
  });
}

}  // namespace
}  // namespace weft::testing
