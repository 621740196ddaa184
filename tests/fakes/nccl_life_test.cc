// Communicators of the fake NCCL from their beginnings to their ends, as they should be used.
#include "tests/fakes/ranks.h"

namespace weft::fakes {
namespace {

using ::testing::ElementsAre;

// Four ranks, one of which gets no child; the keys turn the order of the others around.
TEST(NcclLife, ASplitOrdersItsMembersByKey) {
  for (const bool blocking : {true, false}) {
    for (const int polls : {0, 2}) {
      Reset({.devices = 4, .in_progress_polls = polls});
      const ncclUniqueId id = NewId();
      RunRanks(4, [&](int rank) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = blocking ? 1 : 0;
        config.commName = "parent";
        ncclComm_t parent = nullptr, child = nullptr;
        const auto await = [&](ncclResult_t result, ncclComm_t comm) {
          while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &result));
          EXPECT_EQ(result, ncclSuccess);
        };
        ncclResult_t result = ncclCommInitRankConfig(&parent, 4, id, rank, &config);
        await(result, parent);
        const int color = rank == 2 ? NCCL_SPLIT_NOCOLOR : 7;
        config.commName = "child";
        result = ncclCommSplit(parent, color, -rank, &child, &config);
        await(result, parent);
        if (rank == 2) {
          EXPECT_EQ(child, nullptr);
        } else {
          int ranks = 0, own = -1;
          NCCL(ncclCommCount(child, &ranks));
          NCCL(ncclCommUserRank(child, &own));
          EXPECT_EQ(ranks, 3);
          EXPECT_EQ(own, rank == 3 ? 0 : rank == 1 ? 1 : 2);
          const cudaStream_t stream = NewStream("work");
          Array<int> mine(std::vector<int>{rank}), all(std::size_t{3});
          await(ncclAllGather(mine.data(), all.data(), 1, ncclInt32, child, stream), child);
          CUDA(cudaStreamSynchronize(stream));
          EXPECT_THAT(all.Read(), ElementsAre(3, 1, 0));
          CUDA(cudaStreamDestroy(stream));
          NCCL(ncclCommDestroy(child));
        }
        NCCL(ncclCommDestroy(parent));
      });
      CheckLeaks();
      EXPECT_EQ(FaultText(), "") << "blocking " << blocking << ", polls " << polls;
    }
  }
}

TEST(NcclLife, ADestroyWaitsForUnfinishedWork) {
  for (const bool finalize : {false, true}) {
    Reset({.devices = 2});
    const ncclUniqueId id = NewId();
    RunRanks(2, [&](int rank) {
      const ncclComm_t comm = Join(id, 2, rank, "pair");
      const cudaStream_t stream = NewStream("work");
      Array<int> x(std::vector<int>{1});
      NCCL(ncclAllReduce(x.data(), x.data(), 1, ncclInt32, ncclSum, comm, stream));
      EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
      if (finalize) {
        NCCL(ncclCommFinalize(comm));
      } else {
        NCCL(ncclCommDestroy(comm));
      }
      CUDA(cudaStreamQuery(stream));
      EXPECT_THAT(x.Read(), ElementsAre(2));
      if (finalize) NCCL(ncclCommDestroy(comm));
      CUDA(cudaStreamDestroy(stream));
    });
    CheckLeaks();
    EXPECT_EQ(FaultText(), "");
  }
}

TEST(NcclLife, AFinalizeIsPolledUntilTheKernelsHaveRun) {
  Reset({.devices = 2});
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ncclResult_t result = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
    while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &result));
    const cudaStream_t stream = NewStream("work");
    Array<int> x(std::vector<int>{1});
    NCCL(ncclAllReduce(x.data(), x.data(), 1, ncclInt32, ncclSum, comm, stream));
    result = ncclCommFinalize(comm);
    EXPECT_EQ(result, ncclInProgress);
    while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &result));
    EXPECT_EQ(result, ncclSuccess);
    CUDA(cudaStreamQuery(stream));
    NCCL(ncclCommDestroy(comm));
    CUDA(cudaStreamDestroy(stream));
  });
  CheckLeaks();
  EXPECT_EQ(FaultText(), "");
}

TEST(NcclLife, AnErrorInAGroupEndsItButWhatWasAbortedIsGone) {
  Reset({.devices = 1});
  const ncclComm_t a = Join(NewId(), 1, 0, "a"), b = Join(NewId(), 1, 0, "b");
  Array<int> x(std::vector<int>{1});
  NCCL(ncclGroupStart());
  NCCL(ncclCommAbort(a));
  NCCL(ncclAllReduce(x.data(), x.data(), 1, ncclInt32, ncclSum, b, nullptr));
  EXPECT_EQ(ncclAllReduce(x.data(), x.data(), 1, ncclInt32, ncclMaxRedOp, b, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_THAT(Executed(), ::testing::Not(::testing::Contains(::testing::HasSubstr("all-reduce"))));
  CheckLeaks();
  EXPECT_EQ(Count(FaultKind::kLeak), 3) << FaultText();  // x, b and b's event
  EXPECT_FALSE(Found(FaultKind::kLeak, {"'a'"}));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"ncclGroupEnd without"}));
  NCCL(ncclCommDestroy(b));
}

// Members of one process begin in a group; outside of one the first would wait for ever.
TEST(NcclLife, OneThreadBeginsForSeveralDevicesInAGroup) {
  for (const bool grouped : {true, false}) {
    Reset({.devices = 2});
    RunRanks(1, [&](int) {
      const ncclUniqueId id = NewId();
      ncclComm_t comms[2] = {};
      if (grouped) NCCL(ncclGroupStart());
      for (int device = 0; device < 2; ++device) {
        CUDA(cudaSetDevice(device));
        EXPECT_EQ(ncclCommInitRank(&comms[device], 2, id, device),
                  grouped ? ncclSuccess : ncclSystemError);
        if (!grouped) return;
      }
      NCCL(ncclGroupEnd());
      for (const ncclComm_t comm : comms) NCCL(ncclCommDestroy(comm));
    });
    EXPECT_EQ(Count(FaultKind::kDeadlock), grouped ? 0 : 1) << FaultText();
    if (!grouped) {
      EXPECT_TRUE(Found(FaultKind::kDeadlock, {"ncclCommInitRankConfig", "ranks 1"}));
    }
  }
}

TEST(NcclLife, AUniqueIdIsForOneCommunicator) {
  Reset({.devices = 1});
  const ncclUniqueId id = NewId();
  ncclComm_t comm = nullptr, second = nullptr;
  NCCL(ncclCommInitRank(&comm, 1, id, 0));
  EXPECT_EQ(ncclCommInitRank(&second, 1, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&second, 2, id, 1), ncclInvalidArgument);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(Count(FaultKind::kMisuse), 2) << FaultText();
  NCCL(ncclCommDestroy(comm));
  CheckLeaks();
  EXPECT_EQ(Count(FaultKind::kLeak), 0) << FaultText();
}

// Two kernels of one place each fit where two of two do not.
TEST(NcclLife, MaxCtasLimitsTheProcessorsHeld) {
  for (const int max_ctas : {1, 2}) {
    int deadlocks = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Reset({.devices = 2, .seed = seed, .processors = 2, .channels = 2});
      const ncclUniqueId ids[] = {NewId(), NewId()};
      RunRanks(2, [&](int rank) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.maxCTAs = max_ctas;
        ncclComm_t comms[2] = {};
        Array<int> x(std::vector<int>{1, 1});
        for (int i = 0; i < 2; ++i) {
          NCCL(ncclCommInitRankConfig(&comms[i], 2, ids[i], rank, &config));
        }
        for (int i = 0; i < 2; ++i) {
          NCCL(ncclAllReduce(x.data() + i, x.data() + i, 1, ncclInt32, ncclSum, comms[i],
                             NewStream(std::to_string(i))));
        }
        static_cast<void>(cudaDeviceSynchronize());
        for (const ncclComm_t comm : comms) static_cast<void>(ncclCommDestroy(comm));
      });
      deadlocks += Count(FaultKind::kDeadlock);
    }
    EXPECT_EQ(deadlocks > 0, max_ctas == 2) << deadlocks;
  }
}

TEST(NcclLife, SmallObjects) {
  Reset({.devices = 1});
  int version = 0;
  NCCL(ncclGetVersion(&version));
  EXPECT_EQ(version, 22809);
  void* memory = nullptr;
  NCCL(ncclMemAlloc(&memory, 64));
  const ncclComm_t comm = Join(NewId(), 1, 0, "alone");
  void* handle = nullptr;
  NCCL(ncclCommRegister(comm, memory, 64, &handle));
  NCCL(ncclCommDeregister(comm, handle));
  EXPECT_EQ(ncclCommDeregister(comm, handle), ncclInvalidArgument);
  ncclWindow_t window = nullptr;
  NCCL(ncclCommWindowRegister(comm, memory, 64, &window, NCCL_WIN_DEFAULT));
  EXPECT_EQ(window, nullptr);  // there are none here
  NCCL(ncclCommWindowDeregister(comm, window));
  ncclComm_t shrunk = nullptr;
  int excluded = 0;
  EXPECT_EQ(ncclCommShrink(comm, &excluded, 1, &shrunk, nullptr, NCCL_SHRINK_DEFAULT),
            ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(comm), ::testing::HasSubstr("ncclCommShrink"));
  NCCL(ncclCommDestroy(comm));
  NCCL(ncclMemFree(memory));
  for (int result = 0; result < ncclNumResults; ++result) {
    EXPECT_STRNE(ncclGetErrorString(static_cast<ncclResult_t>(result)), "unknown result code");
  }
  CheckLeaks();
  EXPECT_EQ(FaultText(), "");
}

}  // namespace
}  // namespace weft::fakes
