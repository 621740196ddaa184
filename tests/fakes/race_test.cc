// What is found in the order of streams, events and hosts.
#include <thread>

#include "tests/fakes/program.h"

namespace weft::fakes {
namespace {

constexpr std::size_t kBytes = 1024;
constexpr std::uint64_t kSeeds = 200;

// The waits that keep two streams apart: `b` copies what `a` writes, `a` writes again.
enum class Lost { kNone, kCopyWaitsForWrite, kWriteWaitsForCopy };

void TwoStreams(std::uint64_t seed, Lost lost) {
  const Pace pace = seed % 2 == 0 ? Pace::kLagging : Pace::kEager;
  Reset(Options{.devices = 1, .seed = seed, .pace = pace});
  const HostThread rank;
  const cudaStream_t a = NewStream("a"), b = NewStream("b");
  const cudaEvent_t written = NewEvent(), read = NewEvent();
  std::byte* from = NewMemory(kBytes);
  std::byte* to = NewMemory(kBytes);
  for (int round = 0; round < 5; ++round) {
    OK(cudaMemsetAsync(from, round, kBytes, a));
    OK(cudaEventRecord(written, a));
    if (lost != Lost::kCopyWaitsForWrite) {
      OK(cudaStreamWaitEvent(b, written, 0));
    }
    OK(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, b));
    OK(cudaEventRecord(read, b));
    if (lost != Lost::kWriteWaitsForCopy) {
      OK(cudaStreamWaitEvent(a, read, 0));
    }
  }
  std::vector<std::byte> seen(kBytes);
  OK(cudaMemcpyAsync(seen.data(), to, kBytes, cudaMemcpyDeviceToHost, b));
  if (lost == Lost::kNone) {
    for (const std::byte byte : seen) ASSERT_EQ(byte, std::byte{4});
  }
  OK(cudaStreamSynchronize(a));
  OK(cudaStreamSynchronize(b));
  OK(cudaEventDestroy(written));
  OK(cudaEventDestroy(read));
  OK(cudaFree(from));
  OK(cudaFree(to));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
  CheckLeaks();
}

TEST(Races, TheRightProgramHasNoFault) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    TwoStreams(seed, Lost::kNone);
    ASSERT_EQ(FaultText(), "") << "seed " << seed;
  }
}

// In every order, not only in those in which something goes wrong.
TEST(Races, EachLostWaitIsFoundUnderEverySeed) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    for (const Lost lost : {Lost::kCopyWaitsForWrite, Lost::kWriteWaitsForCopy}) {
      TwoStreams(seed, lost);
      ASSERT_GE(Count(FaultKind::kRace), 1) << "seed " << seed << "\n" << FaultText();
    }
  }
}

class RacesTest : public FakesTest {
 protected:
  void SetUp() override {
    FakesTest::SetUp();
    a_ = NewStream("a");
    b_ = NewStream("b");
    data_ = NewMemory(kBytes);
  }

  cudaStream_t a_ = nullptr, b_ = nullptr;
  std::byte* data_ = nullptr;
};

TEST_F(RacesTest, TheFaultNamesBothWorksTheirStreamsAndTheRange) {
  Engine::Get().Enqueue(a_, Touch("producer", {{data_, 512, true}}));
  OK(cudaDeviceSynchronize());
  Engine::Get().Enqueue(a_, Touch("producer", {{data_ + 128, 256, true}}));
  Engine::Get().Enqueue(b_, Touch("consumer", {{data_, 256, true}}));
  OK(cudaStreamSynchronize(a_));
  OK(cudaStreamSynchronize(b_));
  ExpectFault(FaultKind::kRace, {"'producer' on device 0 stream 'a'",
                                 "'consumer' on device 0 stream 'b'", "[128, 256)", "1024 bytes"});
}

TEST_F(RacesTest, ReadsAndDisjointWritesNeedNoOrder) {
  OK(cudaMemset(data_, 0, kBytes));
  Engine::Get().Enqueue(a_, Touch("left", {{data_, 512, false}, {data_ + 600, 100, true}}));
  Engine::Get().Enqueue(b_, Touch("right", {{data_, 512, false}, {data_ + 700, 100, true}}));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(FaultText(), "");
}

TEST_F(RacesTest, AWriteHasToWaitForAllReads) {
  OK(cudaMemset(data_, 0, kBytes));
  const cudaStream_t c = NewStream("c");
  const cudaEvent_t read = NewEvent();
  Engine::Get().Enqueue(a_, Touch("first reader", {{data_, 8, false}}));
  Engine::Get().Enqueue(b_, Touch("second reader", {{data_, 8, false}}));
  OK(cudaEventRecord(read, b_));
  OK(cudaStreamWaitEvent(c, read, 0));
  Engine::Get().Enqueue(c, Touch("writer", {{data_, 8, true}}));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(Count(FaultKind::kRace), 1) << FaultText();
  EXPECT_NE(FaultText().find("first reader"), std::string::npos);
}

// What has ended is not what is known to have ended.
TEST_F(RacesTest, TheHostOrdersByWhatItAskedFor) {
  const cudaEvent_t end = NewEvent();
  Engine::Get().Enqueue(a_, Touch("first", {{data_, 8, true}}));
  OK(cudaEventRecord(end, a_));
  OK(cudaEventSynchronize(end));
  Engine::Get().Enqueue(b_, Touch("second", {{data_, 8, true}}));
  EXPECT_EQ(FaultText(), "");
  Engine::Get().Enqueue(b_, Touch("third", {{data_, 8, true}}));
  while (cudaStreamQuery(b_) != cudaSuccess) std::this_thread::yield();
  Engine::Get().Enqueue(a_, Touch("fourth", {{data_, 8, true}}));
  OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(FaultText(), "");
  // Nobody asked for the last of these, though the one before it is known.
  Engine::Get().Enqueue(a_, Touch("fifth", {{data_, 8, true}}));
  OK(cudaEventRecord(end, a_));
  OK(cudaEventSynchronize(end));
  Engine::Get().Enqueue(a_, Touch("sixth", {{data_, 8, true}}));
  OK(cudaEventSynchronize(end));
  Engine::Get().Enqueue(b_, Touch("seventh", {{data_, 8, true}}));
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(Count(FaultKind::kRace), 1) << FaultText();
  EXPECT_NE(FaultText().find("sixth"), std::string::npos);
}

// A thread that watches for others shares what it learns with the hosts of the device.
TEST_F(RacesTest, HostsOfADeviceShareWhatTheyKnow) {
  Engine::Get().Enqueue(a_, Touch("first", {{data_, 8, true}}));
  std::thread([&] { EXPECT_EQ(cudaStreamSynchronize(a_), cudaSuccess); }).join();
  Engine::Get().Enqueue(b_, Touch("second", {{data_, 8, true}}));
  OK(cudaStreamSynchronize(b_));
  EXPECT_EQ(FaultText(), "");
}

// NCCL promises nothing between devices: what a peer did before its part of a collective is not
// ordered before what follows ours.
TEST_F(RacesTest, AMeetingOrdersNothingBetweenDevices) {
  void* shared = nullptr;
  OK(cudaHostAlloc(&shared, kBytes, 0));
  auto meeting = std::make_shared<Meeting>("all-reduce", 2, nullptr);
  const auto member = [&](int device, cudaStream_t stream, const char* before, const char* after) {
    OK(cudaSetDevice(device));
    if (before != nullptr) Engine::Get().Enqueue(stream, Touch(before, {{shared, 8, true}}));
    Work work = Touch("all-reduce", {});
    work.meeting = meeting;
    Engine::Get().Enqueue(stream, std::move(work));
    if (after != nullptr) Engine::Get().Enqueue(stream, Touch(after, {{shared, 8, true}}));
  };
  member(0, a_, "before", nullptr);
  OK(cudaSetDevice(1));
  const cudaStream_t other = NewStream("other");
  member(1, other, nullptr, "after");
  OK(cudaStreamSynchronize(other));
  ExpectFault(FaultKind::kRace,
              {"'before' on device 0 stream 'a'", "'after' on device 1 stream 'other'"});
}

TEST_F(RacesTest, AWaitThatIsDroppedIsMissed) {
  for (const bool drop : {false, true}) {
    SetUp();
    if (drop) DropWaits(0, "b", [](std::int64_t index) { return index == 1; });
    const cudaEvent_t end = NewEvent();
    for (int i = 0; i < 3; ++i) {
      Engine::Get().Enqueue(a_, Touch("write " + std::to_string(i), {{data_ + i, 1, true}}));
      OK(cudaEventRecord(end, a_));
      OK(cudaStreamWaitEvent(b_, end, 0));
      Engine::Get().Enqueue(b_, Touch("read " + std::to_string(i), {{data_ + i, 1, false}}));
    }
    EXPECT_EQ(WaitsOn(0, "b"), std::vector<std::string>(3, "a"));
    EXPECT_EQ(WaitsOn(0, "stream 1"), WaitsOn(0, "b"));
    EXPECT_EQ(Streams(0), (std::vector<std::string>{"a", "b"}));
    OK(cudaDeviceSynchronize());
    EXPECT_EQ(Count(FaultKind::kRace) + Count(FaultKind::kUnwritten) > 0, drop) << FaultText();
    EXPECT_EQ(FaultText().find("read 0"), std::string::npos);
  }
}

// Whoever does not wait for a stream that runs last comes before it, and is caught by its order.
TEST_F(RacesTest, AStreamThatRunsLastWaitsForAllThatCanRun) {
  for (const bool waits : {false, true}) {
    SetUp();
    const HostThread host;  // nothing runs before all is enqueued
    RunLast(0, "a");
    const cudaEvent_t end = NewEvent();
    for (int i = 0; i < 3; ++i) Engine::Get().Enqueue(a_, Touch("a", {{data_, 1, true}}));
    OK(cudaEventRecord(end, a_));
    if (waits) OK(cudaStreamWaitEvent(b_, end, 0));
    for (int i = 0; i < 3; ++i) Engine::Get().Enqueue(b_, Touch("b", {{data_ + 1, 1, true}}));
    OK(cudaDeviceSynchronize());
    std::string order;
    for (const std::string& work : Executed()) order += work.back();
    EXPECT_EQ(order, waits ? "aaabbb" : "bbbaaa");
    EXPECT_EQ(FaultText(), "");
  }
}

}  // namespace
}  // namespace weft::fakes
