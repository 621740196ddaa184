// What is found in memory: bounds, life, and whether anything was written.
#include "tests/fakes/program.h"

namespace weft::fakes {
namespace {

constexpr std::size_t kBytes = 1024;

class MemoryTest : public FakesTest {
 protected:
  void SetUp() override {
    FakesTest::SetUp();
    a_ = NewStream("a");
    data_ = NewMemory(kBytes);
  }
  void Run(Work work) {
    Engine::Get().Enqueue(a_, std::move(work));
    OK(cudaStreamSynchronize(a_));
  }

  cudaStream_t a_ = nullptr;
  std::byte* data_ = nullptr;
};

TEST_F(MemoryTest, AReadOfWhatNothingWroteIsFoundOnce) {
  Run(Touch("writer", {{data_, 100, true}, {data_ + 110, 100, true}}));
  Run(Touch("reader", {{data_, 100, false}, {data_ + 110, 100, false}}));
  EXPECT_EQ(FaultText(), "");
  Run(Touch("reader", {{data_, 210, false}}));
  Run(Touch("reader", {{data_, 210, false}}));
  ExpectFault(FaultKind::kUnwritten, {"'reader' on device 0 stream 'a'", "[100, 110)"});
}

TEST_F(MemoryTest, AWorkThatUpdatesReadsFirst) {
  Run(Touch("update", {{data_, 8, true}, {data_, 8, false}}));
  ExpectFault(FaultKind::kUnwritten, {"'update'", "[0, 8)"});
}

TEST_F(MemoryTest, RowsAreWhatTheySay) {
  std::vector<Access> rows;
  AddRows(rows, data_, 4, 16, 64, true);
  Run(Touch("rows", rows));
  for (int row = 0; row < 4; ++row) Run(Touch("row", {{data_ + row * 64, 16, false}}));
  EXPECT_EQ(FaultText(), "");
  Run(Touch("between", {{data_ + 63, 2, false}}));
  ExpectFault(FaultKind::kUnwritten, {"[63, 64)"});
}

TEST_F(MemoryTest, AccessesOutsideAreFoundAndTheirWorkDoesNotRun) {
  struct Case {
    std::ptrdiff_t offset;
    std::size_t bytes;
    const char* words;
  };
  for (const Case& wrong : {Case{1020, 8, "[1020, 1028)"}, Case{1024, 4, "[1024, 1028)"},
                            Case{-4, 4, "[-4, 0)"}, Case{0, 1025, "[0, 1025)"}}) {
    SetUp();
    bool ran = false;
    Work work = Touch("outside", {{data_ + wrong.offset, wrong.bytes, true}});
    work.run = [&] { ran = true; };
    Run(std::move(work));
    ExpectFault(FaultKind::kBounds, {"'outside' on device 0 stream 'a'", wrong.words});
    EXPECT_FALSE(ran);
  }
  SetUp();
  Run(Touch("outside", {{nullptr, 4, true}}));
  ExpectFault(FaultKind::kBounds, {"'outside'", "null"});
}

TEST_F(MemoryTest, MemoryOfAnotherDeviceIsOutOfReachButForCopies) {
  OK(cudaSetDevice(1));
  std::byte* other = NewMemory(8);
  OK(cudaMemset(other, 1, 8));
  OK(cudaSetDevice(0));
  OK(cudaMemcpyAsync(data_, other, 8, cudaMemcpyDeviceToDevice, a_));
  OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(FaultText(), "");
  Run(Touch("kernel", {{other, 8, false}}));
  ExpectFault(FaultKind::kBounds, {"'kernel'", "another device's"});
}

TEST_F(MemoryTest, MemoryOfTheHostIsReachedWherePageablesAre) {
  std::vector<std::byte> pageable(8);
  Run(Touch("kernel", {{pageable.data(), 8, false}}));
  EXPECT_EQ(FaultText(), "");
  Reset(Options{.devices = 1, .pageable_access = false});
  a_ = NewStream("a");
  OK(cudaHostRegister(pageable.data(), 8, 0));
  Run(Touch("kernel", {{pageable.data(), 8, false}}));
  EXPECT_EQ(FaultText(), "");
  OK(cudaHostUnregister(pageable.data()));
  Run(Touch("kernel", {{pageable.data(), 8, false}}));
  ExpectFault(FaultKind::kBounds, {"'kernel'", "no call allocated"});
}

TEST_F(MemoryTest, UseAfterFree) {
  OK(cudaMemset(data_, 0, kBytes));
  OK(cudaFree(data_));
  Run(Touch("late", {{data_, 8, false}}));
  ExpectFault(FaultKind::kUseAfterFree, {"'late' on device 0 stream 'a'", "1024 bytes"});
}

TEST_F(MemoryTest, MemoryThatEnqueuedWorkUsesIsNotFreed) {
  const HostThread rank;  // The device lags: the work is enqueued and no more.
  OK(cudaMemsetAsync(data_, 0, kBytes, a_));
  OK(cudaFree(data_));
  EXPECT_GE(Count(FaultKind::kUseAfterFree), 1) << FaultText();
  EXPECT_EQ(Count(FaultKind::kUseAfterFree), static_cast<int>(Faults().size())) << FaultText();
}

// Under a device that is quick as well: nobody asked whether the work has ended.
TEST_F(MemoryTest, MemoryIsFreedAfterItsLastUseIsKnownToHaveEnded) {
  const cudaStream_t b = NewStream("b");
  Engine::Get().Enqueue(a_, Touch("user", {{data_, 8, true}}));
  OK(cudaMemsetAsync(NewMemory(8), 0, 8, b));  // Allocating waits for all, but tells nothing.
  OK(cudaStreamSynchronize(b));
  OK(cudaFree(data_));
  ExpectFault(FaultKind::kUseAfterFree, {"'user' on device 0 stream 'a'", "frees"});
}

TEST_F(MemoryTest, AFreeFindsNoFaultAfterASynchronization) {
  OK(cudaMemsetAsync(data_, 0, kBytes, a_));
  OK(cudaStreamSynchronize(a_));
  OK(cudaSetDevice(1));  // Whoever frees it.
  OK(cudaFree(data_));
  EXPECT_EQ(FaultText(), "");
}

TEST_F(MemoryTest, MemoryIsFreedOnce) {
  OK(cudaFree(data_));
  EXPECT_EQ(cudaFree(data_), cudaErrorInvalidValue);
  ExpectFault(FaultKind::kMisuse, {"cudaFree", "freed before"});
}

TEST_F(MemoryTest, MemoryOfAStreamComesAndGoesInItsOrder) {
  for (const bool wait_for_memory : {true, false}) {
    for (const bool wait_for_use : {true, false}) {
      FakesTest::SetUp();
      const cudaStream_t owner = NewStream("owner"), user = NewStream("user");
      const cudaEvent_t allocated = NewEvent(), used = NewEvent();
      void* data = nullptr;
      OK(cudaMallocAsync(&data, 8, owner));
      OK(cudaEventRecord(allocated, owner));
      if (wait_for_memory) {
        OK(cudaStreamWaitEvent(user, allocated, 0));
      }
      OK(cudaMemsetAsync(data, 0, 8, user));
      OK(cudaEventRecord(used, user));
      if (wait_for_use) {
        OK(cudaStreamWaitEvent(owner, used, 0));
      }
      OK(cudaFreeAsync(data, owner));
      OK(cudaDeviceSynchronize());
      EXPECT_EQ(FaultText().empty(), wait_for_memory && wait_for_use) << FaultText();
      if (!wait_for_use && wait_for_memory) {
        EXPECT_EQ(Count(FaultKind::kUseAfterFree), 1) << FaultText();
      }
      Engine::Get().Enqueue(owner, Touch("late", {{data, 8, true}}));
      OK(cudaStreamSynchronize(owner));
      EXPECT_GE(Count(FaultKind::kUseAfterFree), 1) << FaultText();
    }
  }
}

TEST(Leaks, EachKindOfObjectIsFound) {
  struct Kind {
    const char* words;
    std::function<std::function<void()>()> make;  // and how to give it back
  };
  const auto graph = [] {
    const cudaStream_t stream = NewStream("captured");
    cudaGraph_t made = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(cudaStreamEndCapture(stream, &made), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    return made;
  };
  const std::vector<Kind> kinds = {
      {"device 0 stream 'mine'",
       [] {
         const cudaStream_t made = NewStream("mine");
         return [=] { EXPECT_EQ(cudaStreamDestroy(made), cudaSuccess); };
       }},
      {"event 0 of device 0",
       [] {
         const cudaEvent_t made = NewEvent();
         return [=] { EXPECT_EQ(cudaEventDestroy(made), cudaSuccess); };
       }},
      {"128 bytes, memory of device 0",
       [] {
         std::byte* made = NewMemory(128);
         return [=] { EXPECT_EQ(cudaFree(made), cudaSuccess); };
       }},
      {"128 bytes, page-locked",
       [] {
         void* made = nullptr;
         EXPECT_EQ(cudaHostAlloc(&made, 128, 0), cudaSuccess);
         return [=] { EXPECT_EQ(cudaFreeHost(made), cudaSuccess); };
       }},
      {"registered memory",
       [] {
         static std::byte memory[64];
         EXPECT_EQ(cudaHostRegister(memory, 64, 0), cudaSuccess);
         return [] { EXPECT_EQ(cudaHostUnregister(memory), cudaSuccess); };
       }},
      {"graph",
       [=] {
         const cudaGraph_t made = graph();
         return [=] { EXPECT_EQ(cudaGraphDestroy(made), cudaSuccess); };
       }},
      {"instantiated graph",
       [=] {
         const cudaGraph_t made = graph();
         cudaGraphExec_t exec = nullptr;
         EXPECT_EQ(cudaGraphInstantiate(&exec, made, 0), cudaSuccess);
         EXPECT_EQ(cudaGraphDestroy(made), cudaSuccess);
         return [=] { EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess); };
       }},
      {"a communicator",
       [] {
         static int made;
         Engine::Get().AddObject(&made, "a communicator");
         return [] { EXPECT_TRUE(Engine::Get().RemoveObject(&made)); };
       }},
  };
  for (const Kind& kind : kinds) {
    for (const bool give_back : {true, false}) {
      Reset(Options{.devices = 1});
      const std::function<void()> destroy = kind.make();
      if (give_back) destroy();
      CheckLeaks();
      if (give_back) {
        EXPECT_EQ(FaultText(), "");
      } else {
        ExpectFault(FaultKind::kLeak, {kind.words});
      }
    }
  }
}

TEST_F(MemoryTest, AllocationsFailWhenTheyAreToldTo) {
  FailAllocation(0, 1);
  void* data = nullptr;
  OK(cudaMalloc(&data, 8));
  void* failed = nullptr;
  EXPECT_EQ(cudaMalloc(&failed, 8), cudaErrorMemoryAllocation);
  EXPECT_EQ(failed, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  OK(cudaMalloc(&failed, 8));
  FailAllocation(1, 0);
  OK(cudaMallocAsync(&failed, 8, a_));
  EXPECT_EQ(FaultText(), "");
}

TEST_F(MemoryTest, PointersTellWhatTheyAre) {
  cudaPointerAttributes found = {};
  OK(cudaSetDevice(1));
  std::byte* other = NewMemory(64);
  OK(cudaPointerGetAttributes(&found, other + 63));
  EXPECT_EQ(found.type, cudaMemoryTypeDevice);
  EXPECT_EQ(found.device, 1);
  void* pinned = nullptr;
  OK(cudaHostAlloc(&pinned, 8, 0));
  OK(cudaPointerGetAttributes(&found, pinned));
  EXPECT_EQ(found.type, cudaMemoryTypeHost);
  OK(cudaPointerGetAttributes(&found, &found));
  EXPECT_EQ(found.type, cudaMemoryTypeUnregistered);
  std::size_t free = 0, total = 0, less = 0;
  OK(cudaMemGetInfo(&free, &total));
  NewMemory(4096);
  OK(cudaMemGetInfo(&less, &total));
  EXPECT_EQ(free - less, 4096u);
}

}  // namespace
}  // namespace weft::fakes
