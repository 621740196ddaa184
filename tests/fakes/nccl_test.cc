// What the fake NCCL finds wrong, each planted once, and that it finds nothing in a right program.

#include "tests/fakes/ranks.h"
#include "tests/support/property.h"

namespace weft::fakes {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kCount = 8;

ncclComm_t JoinWith(const ncclUniqueId& id, int ranks, int rank, ncclConfig_t config) {
  ncclComm_t comm = nullptr;
  ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
  while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &result));
  EXPECT_EQ(result, ncclSuccess);
  return comm;
}

// Ends the call that has just returned `result`.
void Await(ncclComm_t comm, ncclResult_t result) {
  while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &result));
  EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(comm);
}

ncclResult_t AsyncError(ncclComm_t comm) {
  ncclResult_t error = ncclSuccess;
  NCCL(ncclCommGetAsyncError(comm, &error));
  return error;
}

// ---- A right program: two communicators, a stream each, their data handed on by events.

struct Right {
  bool lose_wait = false;  // between the two communicators' streams
};

void RightProgram(const Options& options, const Right& right) {
  Reset(options);
  const ncclUniqueId ids[] = {NewId(), NewId()};
  RunRanks(3, [&](int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = options.in_progress_polls > 0 ? 0 : 1;
    config.commName = "a";
    const ncclComm_t a = JoinWith(ids[0], 3, rank, config);
    config.commName = "b";
    const ncclComm_t b = JoinWith(ids[1], 3, rank, config);
    const cudaStream_t on_a = NewStream("a"), on_b = NewStream("b");
    const cudaEvent_t sum = NewEvent(), sent = NewEvent();
    Array<float> x(kCount), all(3 * kCount);
    for (int round = 0; round < 3; ++round) {
      CUDA(cudaMemsetAsync(x.data(), 0, kCount * sizeof(float), on_a));
      Await(a, ncclAllReduce(x.data(), x.data(), kCount, ncclFloat32, ncclSum, a, on_a));
      CUDA(cudaEventRecord(sum, on_a));
      if (!right.lose_wait) CUDA(cudaStreamWaitEvent(on_b, sum, 0));
      NCCL(ncclGroupStart());
      for (int root = 0; root < 3; ++root) {
        float* const block = all.data() + static_cast<std::size_t>(root) * kCount;
        EXPECT_THAT(ncclBroadcast(x.data(), block, kCount, ncclFloat32, root, b, on_b),
                    ncclSuccess);
      }
      Await(b, ncclGroupEnd());
      CUDA(cudaEventRecord(sent, on_b));
      CUDA(cudaStreamWaitEvent(on_a, sent, 0));
    }
    CUDA(cudaStreamSynchronize(on_a));
    CUDA(cudaStreamSynchronize(on_b));
    for (const float value : all.Read()) EXPECT_EQ(value, 0);
    NCCL(ncclCommDestroy(a));
    NCCL(ncclCommDestroy(b));
    for (const cudaEvent_t event : {sum, sent}) CUDA(cudaEventDestroy(event));
    for (const cudaStream_t stream : {on_a, on_b}) CUDA(cudaStreamDestroy(stream));
  });
  CheckLeaks();
}

TEST(Nccl, ARightProgramHasNoFaultOverManySeeds) {
  for (std::uint64_t seed = 0; seed < (testing::kSanitized ? 20 : 200); ++seed) {
    RightProgram({.devices = 3,
                  .seed = seed,
                  .pace = seed % 2 == 0 ? Pace::kLagging : Pace::kEager,
                  .implicit_launch_order = seed % 3 == 0,
                  .in_progress_polls = static_cast<int>(seed % 4)},
                 {});
    ASSERT_EQ(FaultText(), "") << "seed " << seed;
  }
}

TEST(Nccl, ALostWaitBetweenTwoCommunicatorsIsARace) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    RightProgram({.devices = 3, .seed = seed}, {.lose_wait = true});
    EXPECT_TRUE(Found(FaultKind::kRace, {"of 'a': all-reduce", "of 'b': broadcast"}))
        << "seed " << seed;
  }
}

// ---- Members that disagree.

using Calls = std::function<void(int rank, ncclComm_t comm, float* x, cudaStream_t stream)>;

// Two ranks, one communicator 'pair'; an abort each at the end.
void PairProgram(const Calls& calls) {
  Reset({.devices = 2});
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    const ncclComm_t comm = Join(id, 2, rank, "pair");
    const cudaStream_t stream = NewStream("work");
    Array<float> x(std::vector<float>(2 * kCount, 1.F));
    calls(rank, comm, x.data(), stream);
    CUDA(cudaStreamSynchronize(stream));
    EXPECT_NE(AsyncError(comm), ncclSuccess);
    NCCL(ncclCommAbort(comm));
    CUDA(cudaStreamDestroy(stream));
  });
  CheckLeaks();
}

struct Disagreement {
  const char* name;
  Calls calls;
  std::vector<std::string> words;
};

void PrintTo(const Disagreement& disagreement, std::ostream* to) { *to << disagreement.name; }

class Mismatch : public ::testing::TestWithParam<Disagreement> {};

TEST_P(Mismatch, NamesTheCommunicatorThePlaceAndBothCalls) {
  PairProgram(GetParam().calls);
  EXPECT_EQ(Faults().size(), 1U) << FaultText();
  std::vector<std::string> words{"'pair'", "rank 0", "rank 1"};
  words.insert(words.end(), GetParam().words.begin(), GetParam().words.end());
  EXPECT_TRUE(Found(FaultKind::kMismatch, words));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Mismatch,
    ::testing::Values(Disagreement{"count",
                                   [](int rank, ncclComm_t comm, float* x, cudaStream_t s) {
                                     NCCL(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, comm, s));
                                     const std::size_t count = rank == 0 ? 4 : 5;
                                     NCCL(
                                         ncclAllReduce(x, x, count, ncclFloat32, ncclSum, comm, s));
                                   },
                                   {"#1", "all-reduce 4 f32", "all-reduce 5 f32"}},
                      Disagreement{"type",
                                   [](int rank, ncclComm_t comm, float* x, cudaStream_t s) {
                                     const auto type = rank == 0 ? ncclFloat32 : ncclInt32;
                                     NCCL(ncclAllReduce(x, x, 4, type, ncclSum, comm, s));
                                   },
                                   {"#0", "4 f32", "4 i32"}},
                      Disagreement{"op",
                                   [](int rank, ncclComm_t comm, float* x, cudaStream_t s) {
                                     NCCL(ncclAllReduce(x, x, 4, ncclFloat32,
                                                        rank == 0 ? ncclSum : ncclMax, comm, s));
                                   },
                                   {"#0", "(sum)", "(max)"}},
                      Disagreement{"root",
                                   [](int rank, ncclComm_t comm, float* x, cudaStream_t s) {
                                     NCCL(ncclReduce(x, x, 4, ncclFloat32, ncclSum, rank, comm, s));
                                   },
                                   {"#0", "to rank 0", "to rank 1"}},
                      Disagreement{"function",
                                   [](int rank, ncclComm_t comm, float* x, cudaStream_t s) {
                                     if (rank == 0) {
                                       NCCL(ncclBroadcast(x, x, 4, ncclFloat32, 0, comm, s));
                                     } else {
                                       NCCL(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, comm, s));
                                     }
                                   },
                                   {"#0", "broadcast", "all-reduce"}},
                      Disagreement{"group",
                                   [](int rank, ncclComm_t comm, float* x, cudaStream_t s) {
                                     if (rank == 0) NCCL(ncclGroupStart());
                                     NCCL(ncclBroadcast(x, x, 4, ncclFloat32, 0, comm, s));
                                     // Refused where the first has already been found to be wrong.
                                     static_cast<void>(
                                         ncclBroadcast(x + 4, x + 4, 2, ncclFloat32, 0, comm, s));
                                     if (rank == 0) NCCL(ncclGroupEnd());
                                   },
                                   {"#0", "broadcast 4 f32 from rank 0 + broadcast 2 f32"}},
                      Disagreement{"message",
                                   [](int rank, ncclComm_t comm, float* x, cudaStream_t s) {
                                     if (rank == 0) {
                                       NCCL(ncclSend(x, 3, ncclFloat32, 1, comm, s));
                                     } else {
                                       NCCL(ncclRecv(x, 4, ncclFloat32, 0, comm, s));
                                     }
                                   },
                                   {"#0", "send 3 f32 to rank 1", "recv 4 f32 from rank 0"}}),
    [](const auto& test) { return test.param.name; });

// ---- Calls that NCCL forbids.

// One rank, one device, one communicator; `calls` destroys it.
void Alone(const std::function<void(ncclComm_t comm, float* x, cudaStream_t stream)>& calls,
           int blocking = 1) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "alone";
  config.blocking = blocking;
  RunRanks(1, [&](int) {
    const ncclComm_t comm = JoinWith(NewId(), 1, 0, config);
    const cudaStream_t stream = NewStream("work");
    Array<float> x(std::vector<float>{1, 2, 3, 4});
    calls(comm, x.data(), stream);
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamDestroy(stream));
  });
  CheckLeaks();
}

TEST(Nccl, ACommunicatorOfOneRankCopies) {
  Reset({.devices = 1});
  Alone([](ncclComm_t comm, float* x, cudaStream_t stream) {
    Array<float> y(std::size_t{2});
    NCCL(ncclAllReduce(x, y.data(), 2, ncclFloat32, ncclMin, comm, stream));
    NCCL(ncclReduceScatter(x + 2, x, 2, ncclFloat32, ncclSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    EXPECT_THAT(y.Read(), ElementsAre(1, 2));
    EXPECT_THAT(std::vector<float>(x, x + 4), ElementsAre(3, 4, 3, 4));
    int rank = -1, count = -1, device = -1;
    NCCL(ncclCommUserRank(comm, &rank));
    NCCL(ncclCommCount(comm, &count));
    NCCL(ncclCommCuDevice(comm, &device));
    EXPECT_THAT(std::vector({rank, count, device}), ElementsAre(0, 1, 0));
    NCCL(ncclCommDestroy(comm));
  });
  EXPECT_EQ(FaultText(), "");
}

TEST(Nccl, UseAfterTheEndIsAMisuse) {
  const auto after = [](const std::function<void(ncclComm_t)>& end, const std::string& word) {
    Reset({.devices = 1});
    Alone([&](ncclComm_t comm, float* x, cudaStream_t stream) {
      end(comm);
      EXPECT_NE(ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, comm, stream), ncclSuccess);
      static_cast<void>(ncclCommAbort(comm));
    });
    EXPECT_TRUE(Found(FaultKind::kMisuse, {"ncclAllReduce", "'alone'", word}));
  };
  after([](ncclComm_t comm) { NCCL(ncclCommDestroy(comm)); }, "destroy or abort");
  after([](ncclComm_t comm) { NCCL(ncclCommAbort(comm)); }, "destroy or abort");
  after([](ncclComm_t comm) { NCCL(ncclCommFinalize(comm)); }, "ncclCommFinalize");
  after([](ncclComm_t comm) { NCCL(ncclCommRevoke(comm, 0)); }, "ncclCommRevoke");
}

TEST(Nccl, FinalizeAndRevokeWorkOnce) {
  Reset({.devices = 1});
  Alone([](ncclComm_t comm, float*, cudaStream_t) {
    NCCL(ncclCommFinalize(comm));
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
    NCCL(ncclCommDestroy(comm));
  });
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"ncclCommFinalize", "second time"}));
  Reset({.devices = 1});
  Alone([](ncclComm_t comm, float*, cudaStream_t) {
    NCCL(ncclCommRevoke(comm, 0));
    EXPECT_EQ(ncclCommRevoke(comm, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
    NCCL(ncclCommDestroy(comm));
  });
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"ncclCommRevoke", "twice"}));
}

TEST(Nccl, TwoThreadsAtOnceAreAMisuse) {
  Reset({.devices = 1});
  Alone([](ncclComm_t comm, float* x, cudaStream_t stream) {
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, comm, stream));
    std::thread([&] {
      CUDA(cudaSetDevice(0));
      EXPECT_EQ(ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, comm, stream), ncclInvalidUsage);
    }).join();
    EXPECT_EQ(FaultText().find("misuse: ncclAllReduce on communicator 'alone'"), 0U);
    NCCL(ncclGroupEnd());
    NCCL(ncclCommDestroy(comm));
  });
  EXPECT_EQ(Faults().size(), 1U) << FaultText();
}

TEST(Nccl, BadArgumentsAreRefused) {
  Reset({.devices = 2});
  Alone([](ncclComm_t comm, float* x, cudaStream_t stream) {
    EXPECT_EQ(ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, nullptr, stream), ncclInvalidArgument);
    EXPECT_EQ(ncclReduce(x, x, 2, ncclFloat32, ncclSum, 1, comm, stream), ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(comm), HasSubstr("no rank 1"));
    EXPECT_EQ(ncclReduce(x, x, 2, ncclNumTypes, ncclSum, 0, comm, stream), ncclInvalidArgument);
    EXPECT_EQ(ncclReduce(x, x, 2, ncclFloat32, ncclMaxRedOp, 0, comm, stream), ncclInvalidArgument);
    EXPECT_EQ(FaultText(), "");
    EXPECT_EQ(ncclReduce(x, nullptr, 2, ncclFloat32, ncclSum, 0, comm, stream),
              ncclInvalidArgument);
    EXPECT_TRUE(Found(FaultKind::kMisuse, {"receive buffer is null"}));
    CUDA(cudaSetDevice(1));
    const cudaStream_t foreign = NewStream("foreign");
    EXPECT_EQ(ncclReduce(x, x, 2, ncclFloat32, ncclSum, 0, comm, foreign), ncclInvalidArgument);
    EXPECT_TRUE(Found(FaultKind::kMisuse, {"stream is of another device"}));
    CUDA(cudaStreamDestroy(foreign));
    CUDA(cudaSetDevice(0));
    NCCL(ncclCommDestroy(comm));
    EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(reinterpret_cast<ncclComm_t>(x)), ncclInvalidArgument);
    EXPECT_TRUE(Found(FaultKind::kMisuse, {"what is no communicator"}));
  });
  EXPECT_EQ(Faults().size(), 3U) << FaultText();
}

TEST(Nccl, ConfigurationsAreChecked) {
  Reset({.devices = 1});
  const auto with = [](auto change) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    change(config);
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, 1, NewId(), 0, &config);
    if (comm) NCCL(ncclCommDestroy(comm));
    return result;
  };
  EXPECT_EQ(with([](auto&) {}), ncclSuccess);
  EXPECT_EQ(with([](auto& c) { c.maxCTAs = 0; }), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("maxCTAs = 0"));
  EXPECT_EQ(with([](auto& c) { c.blocking = 2; }), ncclInvalidArgument);
  EXPECT_EQ(with([](auto& c) { c.splitShare = 2; }), ncclInvalidArgument);
  EXPECT_EQ(with([](auto& c) { c.minCTAs = 3, c.maxCTAs = 2; }), ncclInvalidArgument);
  EXPECT_EQ(FaultText(), "");
  EXPECT_EQ(with([](auto& c) { c.magic = 0; }), ncclInvalidArgument);
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"NCCL_CONFIG_INITIALIZER"}));
  // An older structure: what it does not have is not looked at.
  EXPECT_EQ(with([](auto& c) { c.size = offsetof(ncclConfig_t, maxCTAs), c.maxCTAs = 0; }),
            ncclSuccess);
}

TEST(Nccl, BlockingAndOtherCommunicatorsDoNotShareAGroup) {
  Reset({.devices = 1});
  Alone([](ncclComm_t comm, float* x, cudaStream_t stream) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclComm_t other = JoinWith(NewId(), 1, 0, config);
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, comm, stream));
    NCCL(ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, other, stream));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_THAT(Executed(), Not(Contains(HasSubstr("all-reduce"))));
    NCCL(ncclCommDestroy(other));
    NCCL(ncclCommDestroy(comm));
  });
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"blocking = 0"}));
}

TEST(Nccl, ACallWhileAnotherIsInProgressIsAMisuse) {
  Reset({.devices = 1, .in_progress_polls = 2});
  Alone(
      [](ncclComm_t comm, float* x, cudaStream_t stream) {
        EXPECT_EQ(ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, comm, stream), ncclInProgress);
        EXPECT_EQ(ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, comm, stream), ncclInvalidArgument);
        EXPECT_EQ(AsyncError(comm), ncclInProgress);
        EXPECT_EQ(AsyncError(comm), ncclInProgress);
        EXPECT_EQ(AsyncError(comm), ncclSuccess);
        EXPECT_EQ(ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, comm, stream), ncclInProgress);
        EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
        NCCL(ncclCommAbort(comm));
      },
      0);
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"ncclAllReduce", "previous call"}));
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"ncclCommDestroy", "previous call"}));
  EXPECT_EQ(Faults().size(), 2U) << FaultText();
}

TEST(Nccl, WhatIsLeftIsALeak) {
  Reset({.devices = 1});
  Alone([](ncclComm_t, float*, cudaStream_t) {});
  EXPECT_TRUE(Found(FaultKind::kLeak, {"communicator 'alone' rank 0 (device 0)"}));
}

TEST(Nccl, TwoMembersOnOneDeviceAreRefused) {
  Reset({.devices = 2});
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    CUDA(cudaSetDevice(0));
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, rank), ncclInvalidUsage);
    EXPECT_EQ(comm, nullptr);
  });
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"on one device"}));
}

// ---- Buffers.

// Two ranks all-reduce kCount floats of a buffer of `size`; `before` may do something to it.
void WithBuffer(std::size_t size, bool write,
                const std::function<void(float* x, cudaStream_t stream)>& before) {
  Reset({.devices = 2});
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    const ncclComm_t comm = Join(id, 2, rank, "pair");
    const cudaStream_t stream = NewStream("work");
    Array<float> x(size);
    if (write) CUDA(cudaMemset(x.data(), 0, size * sizeof(float)));
    before(x.data(), stream);
    NCCL(ncclAllReduce(x.data(), x.data(), kCount, ncclFloat32, ncclSum, comm, stream));
    CUDA(cudaDeviceSynchronize());
    NCCL(ncclCommDestroy(comm));
    CUDA(cudaStreamDestroy(stream));
  });
}

TEST(Nccl, BuffersAreChecked) {
  const auto nothing = [](float*, cudaStream_t) {};
  WithBuffer(kCount, true, nothing);
  EXPECT_EQ(FaultText(), "");
  WithBuffer(kCount, false, nothing);
  EXPECT_EQ(Count(FaultKind::kUnwritten), 2) << FaultText();
  WithBuffer(kCount - 1, true, nothing);
  EXPECT_GE(Count(FaultKind::kBounds), 2) << FaultText();
  WithBuffer(kCount, true, [](float* x, cudaStream_t) {
    const cudaStream_t other = NewStream("other");
    CUDA(cudaMemsetAsync(x + 2, 0, sizeof(float), other));
  });
  EXPECT_TRUE(Found(FaultKind::kRace, {"of 'pair': all-reduce", "stream 'other'"}));
}

TEST(Nccl, ZeroCountsAreDroppedAndTakeNoPlace) {
  Reset({.devices = 2});
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    const ncclComm_t comm = Join(id, 2, rank, "pair");
    const cudaStream_t stream = NewStream("work");
    Array<float> x(std::vector<float>{1});
    if (rank == 0) {
      NCCL(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, stream));
    }
    NCCL(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    EXPECT_THAT(x.Read(), ElementsAre(2));
    NCCL(ncclCommDestroy(comm));
    CUDA(cudaStreamDestroy(stream));
  });
  CheckLeaks();
  EXPECT_EQ(FaultText(), "");
}

// The streams of a group are joined before and after its kernel, and a communicator's kernels run
// one after the other whatever their streams.
TEST(Nccl, StreamsOfAGroupAreJoined) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Reset({.devices = 2, .seed = seed});
    const ncclUniqueId id = NewId();
    RunRanks(2, [&](int rank) {
      const ncclComm_t comm = Join(id, 2, rank, "pair");
      const cudaStream_t first = NewStream("first"), second = NewStream("second");
      Array<float> x(std::size_t{1}), y(std::size_t{1});
      CUDA(cudaMemsetAsync(x.data(), 0, sizeof(float), first));
      CUDA(cudaMemsetAsync(y.data(), 0, sizeof(float), second));
      NCCL(ncclGroupStart());
      NCCL(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, first));
      NCCL(ncclAllReduce(y.data(), y.data(), 1, ncclFloat32, ncclSum, comm, second));
      NCCL(ncclGroupEnd());
      // Both results are ordered before what follows in either stream.
      CUDA(cudaMemsetAsync(x.data(), 0, sizeof(float), second));
      NCCL(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, second));
      NCCL(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, first));
      CUDA(cudaDeviceSynchronize());
      NCCL(ncclCommDestroy(comm));
      for (const cudaStream_t stream : {first, second}) CUDA(cudaStreamDestroy(stream));
    });
    CheckLeaks();
    ASSERT_EQ(FaultText(), "") << "seed " << seed;
  }
}

// ---- Injected failures.

TEST(Nccl, AFailedCommunicatorSaysSoAndHangsUntilItIsAborted) {
  Reset({.devices = 2});
  FailCommunicator(0, "pair", 1, ncclRemoteError);
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    const ncclComm_t comm = Join(id, 2, rank, "pair");
    const cudaStream_t stream = NewStream("work");
    Array<float> x(std::vector<float>{1});
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(AsyncError(comm), ncclSuccess);
      NCCL(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, stream));
      if (i == 0) CUDA(cudaStreamSynchronize(stream));
    }
    if (rank == 0) {
      EXPECT_EQ(AsyncError(comm), ncclRemoteError);
      EXPECT_EQ(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, stream),
                ncclRemoteError);
    } else {
      EXPECT_EQ(AsyncError(comm), ncclSuccess);
    }
    NCCL(ncclCommAbort(comm));
    CUDA(cudaStreamSynchronize(stream));
    EXPECT_THAT(x.Read(), ElementsAre(2));  // of the first, before the failure
    CUDA(cudaStreamDestroy(stream));
  });
  CheckLeaks();
  EXPECT_EQ(FaultText(), "");
}

TEST(Nccl, ADeadPeerIsWaitedForUntilTheAbort) {
  Reset({.devices = 2});
  KillPeer(1);
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    const ncclComm_t comm = Join(id, 2, rank, "pair");
    const cudaStream_t stream = NewStream("work");
    Array<float> x(std::vector<float>{1});
    NCCL(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, stream));
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    EXPECT_EQ(AsyncError(comm), ncclSuccess);
    NCCL(ncclCommAbort(comm));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamDestroy(stream));
  });
  CheckLeaks();
  EXPECT_EQ(FaultText(), "");
}

TEST(Nccl, AFailedDeviceIsACudaError) {
  Reset({.devices = 1});
  RunRanks(1, [&](int) {
    const ncclComm_t comm = Join(NewId(), 1, 0, "alone");
    const cudaStream_t stream = NewStream("work");
    Array<float> x(std::vector<float>{1});
    FailDevice(0, cudaErrorIllegalAddress);
    EXPECT_EQ(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, stream),
              ncclUnhandledCudaError);
    EXPECT_EQ(AsyncError(comm), ncclUnhandledCudaError);
    static_cast<void>(ncclCommAbort(comm));
  });
  EXPECT_EQ(FaultText(), "");
}

}  // namespace
}  // namespace weft::fakes
