// CUDA's rules of streams, events and devices.
#include <atomic>
#include <cstring>
#include <future>
#include <set>
#include <thread>

#include "tests/fakes/program.h"

namespace weft::fakes {
namespace {

// The device lags behind this thread until it blocks.
class StreamTest : public FakesTest {
 protected:
  void SetUp() override {
    FakesTest::SetUp();
    a_ = NewStream("a");
    b_ = NewStream("b");
    event_ = NewEvent();
  }
  // Notes the order in which works run.
  void Append(cudaStream_t stream, const std::string& name) {
    Work work = Touch(name, {});
    work.run = [this, name] { order_ += name; };
    EXPECT_EQ(Engine::Get().Enqueue(stream, std::move(work)), 0);
  }

  const HostThread rank_;
  cudaStream_t a_ = nullptr, b_ = nullptr;
  cudaEvent_t event_ = nullptr;
  std::string order_;
};

TEST_F(StreamTest, NothingRunsBeforeTheHostBlocks) {
  Append(a_, "1");
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_EQ(cudaStreamQuery(a_), cudaErrorNotReady);
  OK(cudaGetLastError());
  EXPECT_EQ(order_, "");
  {
    const Blocked blocked;
    std::thread([&] {
      while (cudaStreamQuery(a_) != cudaSuccess) std::this_thread::yield();
    }).join();
  }
  EXPECT_EQ(order_, "1");
  EXPECT_EQ(Executed(), (std::vector<std::string>{"device 0 stream 'a': 1"}));
  EXPECT_EQ(FaultText(), "");
}

TEST_F(StreamTest, AnEagerDeviceRunsAtOnce) {
  Reset(Options{.devices = 1, .pace = Pace::kEager});
  const cudaStream_t stream = NewStream("a");
  std::atomic<bool> ran = false;
  Work work = Touch("work", {});
  work.run = [&] { ran = true; };
  Engine::Get().Enqueue(stream, std::move(work));
  while (!ran) std::this_thread::yield();
  OK(cudaStreamSynchronize(stream));
}

TEST_F(StreamTest, StreamsInterleaveAsTheSeedSays) {
  const auto order = [&](std::uint64_t seed) {
    Reset(Options{.devices = 1, .seed = seed});
    a_ = NewStream("a");
    b_ = NewStream("b");
    order_.clear();
    for (const char* name : {"1", "2", "3"}) Append(a_, name);
    for (const char* name : {"x", "y", "z"}) Append(b_, name);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return order_;
  };
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string once = order(seed);
    EXPECT_EQ(once, order(seed));
    EXPECT_LT(once.find('1'), once.find('2'));
    EXPECT_LT(once.find('2'), once.find('3'));
    EXPECT_LT(once.find('x'), once.find('y'));
    EXPECT_LT(once.find('y'), once.find('z'));
    orders.insert(once);
  }
  EXPECT_EQ(orders.size(), 20u);  // All there are.
}

TEST_F(StreamTest, AWaitForAnEventThatWasNeverRecordedIsNone) {
  OK(cudaStreamWaitEvent(a_, event_, 0));
  OK(cudaEventQuery(event_));
  OK(cudaEventSynchronize(event_));
  Append(a_, "1");
  OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(order_, "1");
}

TEST_F(StreamTest, AWaitIsForTheRecordBeforeIt) {
  // The record after the wait is behind what the waiting stream does: a wait that followed the
  // event would never end.
  Append(a_, "1");
  OK(cudaEventRecord(event_, a_));
  OK(cudaStreamWaitEvent(b_, event_, 0));
  Append(b_, "2");
  OK(cudaEventRecord(event_, b_));
  OK(cudaStreamWaitEvent(a_, event_, 0));
  Append(a_, "3");
  OK(cudaEventQuery(event_) == cudaErrorNotReady ? cudaSuccess : cudaErrorUnknown);
  OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(order_, "123");
  OK(cudaEventQuery(event_));
  OK(cudaEventRecord(event_, b_));
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  OK(cudaEventSynchronize(event_));
  EXPECT_EQ(FaultText(), "");
}

TEST_F(StreamTest, ADestroyedEventStillHoldsWhoWaits) {
  Append(a_, "1");
  OK(cudaEventRecord(event_, a_));
  OK(cudaStreamWaitEvent(b_, event_, 0));
  OK(cudaEventDestroy(event_));
  Append(b_, "2");
  OK(cudaStreamSynchronize(b_));
  EXPECT_EQ(order_, "12");
  EXPECT_EQ(FaultText(), "");
  EXPECT_EQ(cudaEventRecord(event_, a_), cudaErrorInvalidResourceHandle);
  ExpectFault(FaultKind::kMisuse, {"cudaEventRecord", "does not exist"});
}

TEST_F(StreamTest, TheWorkOfADestroyedStreamStillRuns) {
  Append(a_, "1");
  OK(cudaEventRecord(event_, a_));
  OK(cudaStreamDestroy(a_));
  OK(cudaEventSynchronize(event_));
  EXPECT_EQ(order_, "1");
  EXPECT_EQ(cudaStreamQuery(a_), cudaErrorInvalidResourceHandle);
  ExpectFault(FaultKind::kMisuse, {"cudaStreamQuery"});
}

TEST_F(StreamTest, WorkNeedsItsDeviceToBeCurrent) {
  std::byte* data = NewMemory(8);
  OK(cudaSetDevice(1));
  EXPECT_EQ(cudaMemsetAsync(data, 0, 8, a_), cudaErrorInvalidResourceHandle);
  ExpectFault(FaultKind::kMisuse, {"cudaMemsetAsync on device 0 stream 'a' while device 1 is"});
  EXPECT_EQ(Engine::Get().Enqueue(a_, Touch("work", {})), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(Count(FaultKind::kMisuse), 2);
  EXPECT_EQ(cudaEventRecord(NewEvent(), a_), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(Count(FaultKind::kMisuse), 3);
  EXPECT_EQ(cudaLaunchHostFunc(
                a_, [](void*) {}, nullptr),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(Count(FaultKind::kMisuse), 4);
  // These may be asked of any device, and events wait across them.
  const cudaStream_t here = NewStream("here");
  OK(cudaEventRecord(event_, a_));
  OK(cudaStreamWaitEvent(here, event_, 0));
  OK(cudaStreamSynchronize(a_));
  OK(cudaEventQuery(event_));
  int device = -1;
  OK(cudaStreamGetDevice(a_, &device));
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  OK(cudaGetDevice(&device));
  EXPECT_EQ(device, 1);
  EXPECT_EQ(Count(FaultKind::kMisuse), 4);
}

TEST_F(StreamTest, TheDefaultStreamWaitsForBlockingOnesAndTheyForIt) {
  cudaStream_t blocking = nullptr;
  OK(cudaStreamCreate(&blocking));
  std::byte* data = NewMemory(8);
  OK(cudaMemsetAsync(data, 1, 8, blocking));
  OK(cudaMemsetAsync(data, 2, 8, nullptr));
  OK(cudaMemsetAsync(data, 3, 8, blocking));
  OK(cudaMemsetAsync(data, 4, 8, cudaStreamLegacy));
  OK(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(data[0], std::byte{4});
  EXPECT_EQ(FaultText(), "");
  OK(cudaMemsetAsync(data, 5, 8, nullptr));
  OK(cudaMemsetAsync(data, 6, 8, a_));
  OK(cudaDeviceSynchronize());
  ExpectFault(FaultKind::kRace, {"stream 'a'", "stream 'default'"});
}

TEST_F(StreamTest, AllocatingWaitsForTheDevice) {
  for (const bool free : {false, true}) {
    order_.clear();
    void* data = free ? NewMemory(8) : nullptr;
    Append(a_, "1");
    EXPECT_EQ(order_, "");
    OK(free ? cudaFree(data) : cudaMalloc(&data, 8));
    EXPECT_EQ(order_, "1");
    Append(a_, "2");
    OK(free ? cudaFreeHost(nullptr) : cudaHostAlloc(&data, 8, 0));
    EXPECT_EQ(order_, free ? "1" : "12");
    OK(cudaDeviceSynchronize());
  }
  Append(a_, "3");
  void* data = nullptr;
  OK(cudaMallocAsync(&data, 8, b_));
  OK(cudaFreeAsync(data, b_));
  EXPECT_EQ(order_.find('3'), std::string::npos);
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(FaultText(), "");
}

TEST_F(StreamTest, HostFunctionsRunInTheirStreamAndMayNotCall) {
  struct Seen {
    cudaError_t inner = cudaSuccess;
    bool ran = false;
  } seen;
  const auto function = [](void* data) {
    auto* to = static_cast<Seen*>(data);
    to->ran = true;
    to->inner = cudaEventQuery(nullptr);
  };
  OK(cudaLaunchHostFunc(a_, function, &seen));
  EXPECT_FALSE(seen.ran);
  OK(cudaStreamSynchronize(a_));
  EXPECT_TRUE(seen.ran);
  EXPECT_EQ(seen.inner, cudaErrorNotPermitted);
  ExpectFault(FaultKind::kMisuse, {"cudaEventQuery in a host function"});
}

TEST_F(StreamTest, AHostFunctionThatWaitsHoldsUpItsStreamAndOtherFunctions) {
  struct Gate {
    std::promise<void> open;
    std::atomic<bool> passed{false}, other{false};
  } gate;
  const auto wait = [](void* data) {
    auto* at = static_cast<Gate*>(data);
    at->open.get_future().wait();
    at->passed = true;
  };
  const auto other = [](void* data) {
    auto* at = static_cast<Gate*>(data);
    at->other = at->passed.load();
  };
  OK(cudaLaunchHostFunc(a_, wait, &gate));
  Append(a_, "2");
  Append(b_, "1");
  OK(cudaStreamSynchronize(b_));
  EXPECT_EQ(order_, "1");
  OK(cudaLaunchHostFunc(b_, other, &gate));
  gate.open.set_value();
  OK(cudaStreamSynchronize(a_));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(order_, "12");
  EXPECT_TRUE(gate.other);
  EXPECT_EQ(FaultText(), "");
}

TEST_F(StreamTest, EventsHaveTimesWhereTheyAreAskedFor) {
  const cudaEvent_t start = NewEvent(cudaEventDefault), end = NewEvent(cudaEventDefault);
  float ms = -1;
  OK(cudaEventRecord(start, a_));
  Append(a_, "1");
  OK(cudaEventRecord(end, a_));
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  OK(cudaEventSynchronize(end));
  OK(cudaEventElapsedTime(&ms, start, end));
  EXPECT_GT(ms, 0);
  OK(cudaEventRecord(event_, a_));
  OK(cudaEventSynchronize(event_));
  EXPECT_EQ(FaultText(), "");
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, event_), cudaErrorInvalidResourceHandle);
  ExpectFault(FaultKind::kMisuse, {"cudaEventElapsedTime"});
}

TEST_F(StreamTest, AFailedDeviceSaysSoFromThenOn) {
  Append(a_, "1");
  std::thread([] { FailDevice(0, cudaErrorECCUncorrectable); }).join();
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaGetLastError(), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaGetLastError(), cudaErrorECCUncorrectable);
  OK(cudaSetDevice(1));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(order_, "");
  EXPECT_EQ(FaultText(), "");
}

TEST_F(StreamTest, AFailureWakesWhoWaits) {
  const auto meeting = std::make_shared<Meeting>("alone", 2, nullptr);
  Work work = Touch("alone", {});
  work.meeting = meeting;
  Engine::Get().Enqueue(a_, std::move(work));
  std::thread other([] {
    const HostThread rank;  // As long as it has not blocked, nobody is stuck.
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    FailDevice(0, cudaErrorIllegalAddress);
  });
  EXPECT_NE(cudaStreamSynchronize(a_), cudaSuccess);
  other.join();
}

TEST_F(StreamTest, PageableMemoryIsReadAtTheCallAndWrittenBeforeItReturns) {
  std::byte* data = NewMemory(8);
  std::vector<std::byte> host(8, std::byte{7});
  OK(cudaMemcpyAsync(data, host.data(), 8, cudaMemcpyHostToDevice, a_));
  host.assign(8, std::byte{0});
  OK(cudaMemcpyAsync(host.data(), data, 8, cudaMemcpyDeviceToHost, a_));
  EXPECT_EQ(host, std::vector<std::byte>(8, std::byte{7}));
  void* pinned = nullptr;
  OK(cudaHostAlloc(&pinned, 8, 0));
  std::memset(pinned, 1, 8);
  OK(cudaMemcpyAsync(data, pinned, 8, cudaMemcpyHostToDevice, a_));
  std::memset(pinned, 2, 8);
  OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(data[0], std::byte{2});
}

}  // namespace
}  // namespace weft::fakes
