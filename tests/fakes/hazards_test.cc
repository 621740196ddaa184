// Programs that hang or go wrong on hardware, as they are written without thinking: each has to be
// found, with a text that says what happened. The letters are those of the reference's list.
#include <latch>

#include "tests/fakes/ranks.h"

namespace weft::fakes {
namespace {

// Two ranks with the communicators 'a' and 'b', a stream for each.
struct Member {
  int rank = 0;
  ncclComm_t a = nullptr, b = nullptr;
  cudaStream_t on_a = nullptr, on_b = nullptr;
  float *x = nullptr, *y = nullptr;

  ncclResult_t SumA() { return ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, a, on_a); }
  ncclResult_t SumB() { return ncclAllReduce(y, y, 1, ncclFloat32, ncclSum, b, on_b); }
  // After a deadlock every call fails: what was found is what counts.
  void AbortBoth() {
    static_cast<void>(ncclGroupStart());
    static_cast<void>(ncclCommAbort(a));
    static_cast<void>(ncclCommAbort(b));
    static_cast<void>(ncclGroupEnd());
  }
};

void Pair(const Options& options, const std::function<void(Member& member)>& f) {
  Reset(options);
  const ncclUniqueId a = NewId(), b = NewId();
  RunRanks(2, [&](int rank) {
    Array<float> x(std::vector<float>{1}), y(std::vector<float>{1});
    Member member{rank,           Join(a, 2, rank, "a"), Join(b, 2, rank, "b"),
                  NewStream("a"), NewStream("b"),        x.data(),
                  y.data()};
    f(member);
  });
}

// A.1, A.2: one order on one rank, the other on the other.
void OppositeOrders(Options options, bool same) {
  Pair(options, [&](Member& member) {
    if (same || member.rank == 0) {
      NCCL(member.SumA());
      NCCL(member.SumB());
    } else {
      NCCL(member.SumB());
      NCCL(member.SumA());
    }
    static_cast<void>(cudaDeviceSynchronize());
    member.AbortBoth();
  });
}

TEST(Hazards, A1OppositeOrdersAreAnOrderFaultEvenWhereTheyDoNotHang) {
  OppositeOrders({.devices = 2}, false);
  EXPECT_EQ(Count(FaultKind::kOrder), 1) << FaultText();
  EXPECT_TRUE(Found(FaultKind::kOrder, {"'a'", "'b'", "device 0", "device 1"}));
  OppositeOrders({.devices = 2}, true);
  EXPECT_EQ(FaultText(), "");
}

void ExpectBothWait() {
  EXPECT_TRUE(Found(FaultKind::kDeadlock, {"#0 of 'a'", "#0 of 'b'", "device 0", "device 1",
                                           "1 of 2 have started", "cudaDeviceSynchronize"}));
}

TEST(Hazards, A2OppositeOrdersHangWhereOneHasToWaitForTheOther) {
  Options options{.devices = 2, .hardware_queues = 1, .processors = 2};
  for (options.seed = 0; options.seed < 50; ++options.seed) {
    OppositeOrders(options, false);
    EXPECT_EQ(Count(FaultKind::kOrder), 1) << FaultText();
    ExpectBothWait();
    OppositeOrders(options, true);
    EXPECT_EQ(FaultText(), "") << "seed " << options.seed;
  }
}

// From several queues it is the device's choice which of two kernels gets the processors, so that
// even one order hangs at times, unless the launch order holds for the start as well.
TEST(Hazards, A2WithProcessorsForOneOnlyOneOrderIsNotEnough) {
  const auto deadlocks = [](bool same, bool ordered) {
    int found = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      OppositeOrders(
          {.devices = 2, .seed = seed, .processors = 2, .implicit_launch_order = ordered}, same);
      if (Count(FaultKind::kDeadlock) == 0) continue;
      ++found;
      ExpectBothWait();
    }
    return found;
  };
  EXPECT_GT(deadlocks(false, false), 5);
  EXPECT_GT(deadlocks(true, false), 5);
  EXPECT_EQ(deadlocks(false, true), 50);
  EXPECT_EQ(deadlocks(true, true), 0);
}

// A.4: two streams need not progress at once. What a kernel of 'a' needs comes after it in the
// only hardware queue.
TEST(Hazards, A4AStreamThatHasToOvertakeHangsInOneHardwareQueue) {
  for (const int queues : {1, 8}) {
    Pair({.devices = 2, .hardware_queues = queues}, [](Member& member) {
      const cudaEvent_t ready = NewEvent();
      NCCL(member.SumA());
      if (member.rank == 0) {
        // Rank 1's sum waits for a copy that rank 0 makes behind its own sum.
        CUDA(cudaMemsetAsync(member.y, 0, sizeof(float), member.on_b));
      }
      NCCL(member.SumB());
      CUDA(cudaEventRecord(ready, member.on_b));
      CUDA(cudaStreamWaitEvent(member.on_a, ready, 0));
      static_cast<void>(cudaDeviceSynchronize());
      member.AbortBoth();
    });
    EXPECT_EQ(FaultText(), "");
  }
  // Rank 1 sums 'a' only after 'b', in its streams, but launches both in the common order.
  for (const int queues : {1, 8}) {
    Pair({.devices = 2, .hardware_queues = queues}, [](Member& member) {
      const cudaEvent_t summed = NewEvent();
      if (member.rank == 1) {
        NCCL(member.SumB());
        CUDA(cudaEventRecord(summed, member.on_b));
        CUDA(cudaStreamWaitEvent(member.on_a, summed, 0));
        NCCL(member.SumA());
      } else {
        NCCL(member.SumA());
        NCCL(member.SumB());
      }
      static_cast<void>(cudaDeviceSynchronize());
      member.AbortBoth();
    });
    EXPECT_EQ(Count(FaultKind::kDeadlock), queues == 1 ? 1 : 0) << FaultText();
    if (queues == 1) {
      EXPECT_TRUE(Found(FaultKind::kDeadlock, {"hardware queue 0 behind", "#0 of 'a'"}));
    }
  }
}

// A.6: three communicators of three ranks in one order, and processors for two of them: each rank
// may have started another two. The launch order sees to it.
TEST(Hazards, A6ThreeCommunicatorsNeedProcessorsForAll) {
  const auto deadlocks = [](int processors, bool ordered) {
    int found = 0;
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      Reset({.devices = 3,
             .seed = seed,
             .processors = processors,
             .channels = 2,
             .implicit_launch_order = ordered});
      const ncclUniqueId ids[] = {NewId(), NewId(), NewId()};
      RunRanks(3, [&](int rank) {
        Array<float> x(std::vector<float>{1, 1, 1});
        std::vector<ncclComm_t> comms;
        for (int i = 0; i < 3; ++i) {
          comms.push_back(
              Join(ids[i], 3, rank, std::string(1, static_cast<char>('a' + i)).c_str()));
        }
        for (int i = 0; i < 3; ++i) {
          const cudaStream_t stream = NewStream("stream of " + std::to_string(i));
          NCCL(ncclAllReduce(x.data() + i, x.data() + i, 1, ncclFloat32, ncclSum,
                             comms[static_cast<std::size_t>(i)], stream));
        }
        static_cast<void>(cudaDeviceSynchronize());
        static_cast<void>(ncclGroupStart());
        for (const ncclComm_t comm : comms) static_cast<void>(ncclCommAbort(comm));
        static_cast<void>(ncclGroupEnd());
      });
      if (Count(FaultKind::kDeadlock) > 0) {
        ++found;
        EXPECT_TRUE(Found(FaultKind::kDeadlock, {"waits for 2 of", "held by"}));
      }
      EXPECT_EQ(Count(FaultKind::kOrder), 0) << FaultText();
    }
    return found;
  };
  EXPECT_GT(deadlocks(4, false), 0);
  EXPECT_EQ(deadlocks(6, false), 0);
  EXPECT_EQ(deadlocks(4, true), 0);
}

// A.8: one rank waits on its host between the two, the other has them the other way around.
TEST(Hazards, A8AHostThatWaitsBetweenTheTwoOnOneRankOnly) {
  Pair({.devices = 2}, [](Member& member) {
    if (member.rank == 0) {
      NCCL(member.SumA());
      static_cast<void>(cudaStreamSynchronize(member.on_a));
      static_cast<void>(member.SumB());
    } else {
      NCCL(member.SumB());
      static_cast<void>(cudaStreamSynchronize(member.on_b));
      static_cast<void>(member.SumA());
    }
    static_cast<void>(cudaDeviceSynchronize());
    member.AbortBoth();
  });
  EXPECT_TRUE(Found(FaultKind::kDeadlock,
                    {"#0 of 'a'", "#0 of 'b'", "not even enqueued", "cudaStreamSynchronize"}));
}

// B.15: rank 1 allocates while rank 0's kernel already waits for it, and its own earlier kernel
// waits for rank 0: an allocation can wait for the whole device.
TEST(Hazards, B15AFreeWaitsForAKernelThatWaitsForThePeer) {
  Pair({.devices = 2}, [](Member& member) {
    void* memory = nullptr;
    CUDA(cudaMalloc(&memory, 16));
    if (member.rank == 0) {
      NCCL(member.SumA());
      static_cast<void>(cudaFree(memory));
      static_cast<void>(member.SumB());
    } else {
      NCCL(member.SumB());
      static_cast<void>(cudaFree(memory));
      static_cast<void>(member.SumA());
    }
    static_cast<void>(cudaDeviceSynchronize());
    member.AbortBoth();
  });
  EXPECT_TRUE(Found(FaultKind::kDeadlock, {"cudaFree", "all work of device 0", "#0 of 'a'"}));
}

// B.19: as with CUDA_LAUNCH_BLOCKING=1, each launch waits for its kernel. One thread that drives
// two devices never comes to the second.
TEST(Hazards, B19OneThreadForTwoDevicesThatWaitsAfterEachLaunch) {
  Reset({.devices = 2});
  RunRanks(1, [](int) {
    ncclComm_t comms[2] = {};
    cudaStream_t streams[2] = {};
    const ncclUniqueId id = NewId();
    NCCL(ncclGroupStart());
    for (int device = 0; device < 2; ++device) {
      CUDA(cudaSetDevice(device));
      streams[device] = NewStream("work");
      NCCL(ncclCommInitRank(&comms[device], 2, id, device));
    }
    NCCL(ncclGroupEnd());
    float* memory = nullptr;
    for (int device = 0; device < 2; ++device) {
      CUDA(cudaSetDevice(device));
      CUDA(cudaMalloc(reinterpret_cast<void**>(&memory), sizeof(float)));
      CUDA(cudaMemset(memory, 0, sizeof(float)));
      static_cast<void>(
          ncclAllReduce(memory, memory, 1, ncclFloat32, ncclSum, comms[device], streams[device]));
      static_cast<void>(cudaStreamSynchronize(streams[device]));
      if (device == 0) {
        EXPECT_TRUE(Found(FaultKind::kDeadlock, {"cudaStreamSynchronize", "not even enqueued"}));
        break;
      }
    }
  });
}

// C.22, C.23: a peer is gone, kernels of both communicators hang. An abort of one waits for the
// device, and so for the other.
TEST(Hazards, C22AnAbortWaitsForTheOtherCommunicatorsKernel) {
  Pair({.devices = 2}, [](Member& member) {
    if (member.rank == 1) return;
    NCCL(member.SumA());
    NCCL(member.SumB());
    EXPECT_NE(ncclCommAbort(member.a), ncclSuccess);
    static_cast<void>(ncclCommAbort(member.b));
  });
  EXPECT_TRUE(Found(FaultKind::kDeadlock, {"ncclCommAbort of communicator 'a' rank 0", "#0 of 'b'",
                                           "not even enqueued"}));
}

TEST(Hazards, C23AGroupedAbortReturnsAndSoDoesOneAfterTheKernelsWereRevoked) {
  for (const bool revoke : {false, true}) {
    Pair({.devices = 2}, [&](Member& member) {
      if (member.rank == 1) return;
      NCCL(member.SumA());
      NCCL(member.SumB());
      if (!revoke) {
        NCCL(ncclGroupStart());
        NCCL(ncclCommAbort(member.a));
        NCCL(ncclCommAbort(member.b));
        NCCL(ncclGroupEnd());
        return;
      }
      NCCL(ncclCommRevoke(member.a, 0));
      NCCL(ncclCommRevoke(member.b, 0));
      NCCL(ncclCommAbort(member.a));
      NCCL(ncclCommAbort(member.b));
    });
    EXPECT_EQ(FaultText(), "") << "revoke " << revoke;
  }
}

// The abort ends the kernels of its own device; those of the peers go on waiting, here for the
// third rank, until they abort as well.
TEST(Hazards, C22APeersKernelHangsUntilItsOwnAbort) {
  Reset({.devices = 3});
  const ncclUniqueId id = NewId();
  std::latch aborted(1), seen(1);
  const auto await = [](std::latch& latch) {
    const Blocked blocked;
    latch.wait();
  };
  RunRanks(3, [&](int rank) {
    const ncclComm_t comm = Join(id, 3, rank, "three");
    const cudaStream_t stream = NewStream("work");
    Array<float> x(std::vector<float>{1});
    if (rank < 2) {
      NCCL(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, stream));
    }
    if (rank == 1) {
      await(aborted);
      // Often enough for the device to go on meanwhile.
      for (int i = 0; i < 200; ++i) EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
      seen.count_down();
    }
    if (rank == 2) await(seen);
    NCCL(ncclCommAbort(comm));
    if (rank == 0) aborted.count_down();
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamDestroy(stream));
  });
  CheckLeaks();
  EXPECT_EQ(FaultText(), "");
}

// C.26: children that share nothing do not end with their parent.
TEST(Hazards, C26AnAbortOfTheParentDoesNotReachAChild) {
  for (const bool share : {false, true}) {
    Pair({.devices = 2}, [&](Member& member) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.splitShare = share ? 1 : 0;
      config.commName = "child";
      ncclComm_t child = nullptr;
      NCCL(ncclCommSplit(member.a, 0, member.rank, &child, &config));
      if (member.rank == 1) return;
      NCCL(ncclAllReduce(member.x, member.x, 1, ncclFloat32, ncclSum, child, member.on_a));
      const ncclResult_t aborted = ncclCommAbort(member.a);
      EXPECT_EQ(aborted == ncclSuccess, share);
      if (share) {
        EXPECT_NE(ncclAllReduce(member.x, member.x, 1, ncclFloat32, ncclSum, child, member.on_a),
                  ncclSuccess);
      }
      static_cast<void>(ncclCommAbort(child));
    });
    EXPECT_EQ(Count(FaultKind::kDeadlock), share ? 0 : 1) << FaultText();
    if (!share) {
      EXPECT_TRUE(Found(FaultKind::kDeadlock, {"ncclCommAbort of communicator 'a'", "'child'"}));
    }
  }
}

// C.27: a captured graph has kernels of the communicator, and is still there.
TEST(Hazards, C27ADestroyWaitsForGraphs) {
  const auto program = [](bool destroy_graph_first) {
    Pair({.devices = 2}, [&](Member& member) {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      CUDA(cudaStreamBeginCapture(member.on_a, cudaStreamCaptureModeThreadLocal));
      NCCL(member.SumA());
      CUDA(cudaStreamEndCapture(member.on_a, &graph));
      CUDA(cudaGraphInstantiate(&exec, graph, 0));
      for (int i = 0; i < 3; ++i) CUDA(cudaGraphLaunch(exec, member.on_a));
      CUDA(cudaStreamSynchronize(member.on_a));
      float sum = 0;
      CUDA(cudaMemcpy(&sum, member.x, sizeof sum, cudaMemcpyDeviceToHost));
      EXPECT_EQ(sum, 8);
      if (destroy_graph_first) {
        CUDA(cudaGraphExecDestroy(exec));
        CUDA(cudaGraphDestroy(graph));
      }
      EXPECT_EQ(ncclCommDestroy(member.a) == ncclSuccess, destroy_graph_first);
      static_cast<void>(ncclCommDestroy(member.b));
    });
  };
  program(true);
  EXPECT_EQ(FaultText(), "");
  program(false);
  EXPECT_TRUE(Found(FaultKind::kDeadlock, {"ncclCommDestroy of communicator 'a'", "graphs"}));
}

// C.29
TEST(Hazards, C29ASecondDestroyIsFound) {
  Pair({.devices = 2}, [](Member& member) {
    NCCL(ncclCommDestroy(member.a));
    EXPECT_EQ(ncclCommDestroy(member.a), ncclInvalidArgument);
    NCCL(ncclCommDestroy(member.b));
  });
  EXPECT_EQ(Count(FaultKind::kMisuse), 2) << FaultText();
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"ncclCommDestroy", "'a' rank 1", "after its destroy"}));
}

// D.30: a child exists once its parent's call has ended.
TEST(Hazards, D30AChildComesLate) {
  Reset({.devices = 2, .in_progress_polls = 3});
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = "parent";
    ncclComm_t parent = nullptr, child = nullptr;
    ncclResult_t result = ncclCommInitRankConfig(&parent, 2, id, rank, &config);
    while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(parent, &result));
    result = ncclCommSplit(parent, rank, 0, &child, nullptr);
    EXPECT_EQ(result, ncclInProgress);
    EXPECT_EQ(child, nullptr);
    while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(parent, &result));
    EXPECT_NE(child, nullptr);
    int ranks = 0;
    NCCL(ncclCommCount(child, &ranks));
    EXPECT_EQ(ranks, 1);
    NCCL(ncclCommDestroy(child));
    NCCL(ncclCommDestroy(parent));
  });
  CheckLeaks();
  EXPECT_EQ(FaultText(), "");
}

// D.31
TEST(Hazards, D31ACommunicatorIsUsedRightAfterItsInit) {
  Reset({.devices = 2, .in_progress_polls = 2});
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = "young";
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress);
    Array<float> x(std::vector<float>{1});
    EXPECT_EQ(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, nullptr),
              ncclInvalidArgument);
    ncclResult_t result = ncclInProgress;
    while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &result));
    NCCL(ncclCommDestroy(comm));
  });
  EXPECT_TRUE(Found(FaultKind::kMisuse, {"ncclAllReduce", "'young'", "ncclSuccess"}));
}

// D.32: the event is recorded while the kernel is not yet in its stream.
TEST(Hazards, D32AnEventThatIsRecordedTooEarlyIsARace) {
  const auto program = [](bool poll) {
    Reset({.devices = 2, .in_progress_polls = 2});
    const ncclUniqueId id = NewId();
    RunRanks(2, [&](int rank) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      config.commName = "late";
      ncclComm_t comm = nullptr;
      ncclResult_t result = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
      while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &result));
      const cudaStream_t sums = NewStream("sums"), uses = NewStream("uses");
      const cudaEvent_t summed = NewEvent();
      Array<float> x(std::vector<float>{1}), y(std::vector<float>{0});
      result = ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, comm, sums);
      EXPECT_EQ(result, ncclInProgress);
      while (poll && result == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &result));
      CUDA(cudaEventRecord(summed, sums));
      CUDA(cudaStreamWaitEvent(uses, summed, 0));
      CUDA(cudaMemcpyAsync(y.data(), x.data(), sizeof(float), cudaMemcpyDeviceToDevice, uses));
      while (result == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &result));
      CUDA(cudaDeviceSynchronize());
      NCCL(ncclCommDestroy(comm));
    });
  };
  program(true);
  EXPECT_EQ(FaultText(), "");
  program(false);
  EXPECT_TRUE(Found(FaultKind::kRace, {"#0 of 'late': all-reduce", "stream 'uses'"}));
}

}  // namespace
}  // namespace weft::fakes
