// What cannot run for ever, and what is only late.
#include <thread>

#include "tests/fakes/program.h"

namespace weft::fakes {
namespace {

constexpr std::uint64_t kSeeds = 200;

Work Member(const std::shared_ptr<Meeting>& meeting, int processors = 1, bool ordered = false) {
  Work work;
  work.name = meeting->name();
  work.meeting = meeting;
  work.processors = processors;
  work.ordered_launch = ordered;
  return work;
}

std::shared_ptr<Meeting> Meet(const std::string& name, int members = 2) {
  return std::make_shared<Meeting>(name, members, nullptr);
}

// One stream for each of two communicators on each of two devices, with two collectives of each;
// the devices call them in these orders.
void TwoCommunicators(const Options& options, bool same_order, bool ordered_launch,
                      int processors = 1) {
  Reset(options);
  const HostThread rank;
  const std::shared_ptr<Meeting> meetings[2][2] = {{Meet("left"), Meet("left again")},
                                                   {Meet("right"), Meet("right again")}};
  cudaStream_t streams[2][2];
  for (int device : {0, 1}) {
    OK(cudaSetDevice(device));
    streams[device][0] = NewStream("left");
    streams[device][1] = NewStream("right");
    const int first = device == 0 || same_order ? 0 : 1;
    for (int communicator : {first, 1 - first}) {
      for (const auto& meeting : meetings[communicator]) {
        Engine::Get().Enqueue(streams[device][communicator],
                              Member(meeting, processors, ordered_launch));
      }
    }
  }
  for (int device : {0, 1}) {
    OK(cudaSetDevice(device));
    for (cudaStream_t stream : streams[device]) {
      if (cudaStreamSynchronize(stream) != cudaSuccess) return;
    }
  }
}

TEST(Deadlocks, OppositeOrdersEndWhereStreamsAreIndependent) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    TwoCommunicators({.devices = 2, .seed = seed, .hardware_queues = 8}, false, false);
    ASSERT_EQ(FaultText(), "") << "seed " << seed;
  }
}

// With a single thread nothing is late: what waits waits for ever.
TEST(Deadlocks, OneHardwareQueueIsFound) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Options options{.devices = 2, .seed = seed, .hardware_queues = 1};
    TwoCommunicators(options, true, false);
    ASSERT_EQ(FaultText(), "") << "seed " << seed;
    TwoCommunicators(options, false, false);
    ExpectFault(
        FaultKind::kDeadlock,
        {"'left' on device 0 stream 'left' waits for its peers: 1 of 2 have started, that of "
         "device 1 stream 'left' is enqueued",
         "'left' on device 1 stream 'left' waits for hardware queue 0 behind 'right again' on "
         "device 1 stream 'right'",
         "'right again' on device 1 stream 'right' waits for 'right' on device 1 stream "
         "'right', before it in its stream"});
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(Deadlocks, TooFewProcessorsAreFound) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Options options{.devices = 2, .seed = seed, .hardware_queues = 8, .processors = 4};
    TwoCommunicators(options, false, false, 2);
    ASSERT_EQ(FaultText(), "") << "seed " << seed;
    options.processors = 3;
    TwoCommunicators(options, false, false, 2);
    found += Count(FaultKind::kDeadlock);
    if (Count(FaultKind::kDeadlock) == 0) continue;
    ExpectFault(FaultKind::kDeadlock, {"waits for 2 of 3 processors, 2 held by"});
  }
  // Twice each device starts one of the two; by chance they are the same.
  EXPECT_GT(found, static_cast<int>(kSeeds) / 2);
  EXPECT_LT(found, static_cast<int>(kSeeds) * 9 / 10);
}

TEST(Deadlocks, OppositeLaunchOrdersAreFound) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    TwoCommunicators({.devices = 2, .seed = seed}, true, true);
    ASSERT_EQ(FaultText(), "") << "seed " << seed;
    TwoCommunicators({.devices = 2, .seed = seed}, false, true);
    ASSERT_EQ(Count(FaultKind::kDeadlock), 1) << "seed " << seed;
    ASSERT_NE(FaultText().find("waits for its turn in the launch order"), std::string::npos);
  }
}

TEST(Deadlocks, CircularWaitsAcrossDevicesAreFound) {
  for (const bool circular : {false, true}) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      Reset({.devices = 2, .seed = seed});
      const auto one = Meet("one"), two = Meet("two");
      cudaStream_t a[2], b[2];
      for (int device : {0, 1}) {
        OK(cudaSetDevice(device));
        a[device] = NewStream("a");
        b[device] = NewStream("b");
        // Each device keeps one of the collectives back until the other one has ended.
        const bool one_first = device == 0 || !circular;
        const cudaEvent_t end = NewEvent();
        Engine::Get().Enqueue(a[device], Member(one_first ? one : two));
        OK(cudaEventRecord(end, a[device]));
        OK(cudaStreamWaitEvent(b[device], end, 0));
        Engine::Get().Enqueue(b[device], Member(one_first ? two : one));
      }
      const cudaError_t error = cudaStreamSynchronize(b[1]);
      if (!circular) {
        ASSERT_EQ(error, cudaSuccess);
        ASSERT_EQ(FaultText(), "") << "seed " << seed;
        continue;
      }
      ASSERT_EQ(error, cudaErrorLaunchTimeout);
      ExpectFault(
          FaultKind::kDeadlock,
          {"a host thread of device 1 waits in cudaStreamSynchronize of device 1 stream 'b'",
           "'one' on device 0 stream 'a' waits for its peers: 1 of 2",
           "on device 0 stream 'b' waits for the event recorded on device 0 stream 'a' after "
           "'one' on device 0 stream 'a'",
           "on device 1 stream 'b' waits for the event recorded on device 1 stream 'a' after "
           "'two' on device 1 stream 'a'"});
      ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    }
  }
}

TEST(Deadlocks, ABrokenWorldReturnsTheErrorUntilReset) {
  TwoCommunicators({.devices = 2, .hardware_queues = 1}, false, false);
  EXPECT_EQ(Count(FaultKind::kDeadlock), 1);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 8), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchTimeout);
  EXPECT_FALSE(Engine::Get().BlockHost("anything", [] { return false; }));
  EXPECT_EQ(Faults().size(), 1u) << FaultText();
  Reset(Options{.devices = 1});
  EXPECT_EQ(cudaMalloc(&data, 8), cudaSuccess);
  EXPECT_EQ(FaultText(), "");
}

// What is destroyed in a broken world is gone: the deadlock is its only fault.
TEST(Deadlocks, ABrokenWorldCanBeTakenApart) {
  Reset({.devices = 1});
  const cudaStream_t stream = NewStream("a");
  const cudaEvent_t event = NewEvent();
  std::byte* data = NewMemory(8);
  Work work = Member(Meet("alone"));
  work.accesses = {{data, 8, true}};
  Engine::Get().Enqueue(stream, std::move(work));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaFree(data), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorLaunchTimeout);
  CheckLeaks();
  ExpectFault(FaultKind::kDeadlock, {"1 of 2 have started, 1 not even enqueued"});
}

// A rank's thread that has not come yet is no deadlock.
TEST(Deadlocks, RanksThatAreLateAreWaitedFor) {
  for (const Pace pace : {Pace::kEager, Pace::kLagging}) {
    Reset({.devices = 2, .pace = pace, .host_threads = 2});
    const auto meeting = Meet("meeting");
    const auto rank = [&](int device) {
      const HostThread host;
      OK(cudaSetDevice(device));
      const cudaStream_t stream = NewStream("a");
      Engine::Get().Enqueue(stream, Member(meeting));
      OK(cudaStreamSynchronize(stream));
    };
    std::thread first(rank, 0);
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    std::thread second(rank, 1);
    first.join();
    second.join();
    EXPECT_EQ(FaultText(), "");
  }
}

TEST(Deadlocks, HostsBlockedElsewhereCountAfterTheGrace) {
  Reset({.devices = 1, .grace_ms = 20});
  const HostThread rank;
  const cudaStream_t stream = NewStream("a");
  const cudaEvent_t end = NewEvent();
  Engine::Get().Enqueue(stream, Member(Meet("alone")));
  OK(cudaEventRecord(end, stream));
  {
    const Blocked blocked;
    // What would wake the rank asks for the event, as a watcher does.
    std::thread([&] {
      while (cudaEventQuery(end) == cudaErrorNotReady) std::this_thread::yield();
    }).join();
  }
  ExpectFault(FaultKind::kDeadlock, {"a host thread of device 0 waits outside of the fakes",
                                     "'alone' on device 0 stream 'a' waits for its peers"});
}

TEST(Deadlocks, AHostThatAsksAgainAndAgainIsBlocked) {
  for (const bool alone : {true, false}) {
    Reset({.devices = 1, .grace_ms = 20});
    const HostThread rank;
    const cudaStream_t stream = NewStream("a");
    Engine::Get().Enqueue(stream, Member(Meet("meeting", alone ? 2 : 1)));
    cudaError_t error = cudaErrorNotReady;
    int asked = 0;
    for (; error == cudaErrorNotReady; ++asked) error = cudaStreamQuery(stream);
    EXPECT_GT(asked, 32);
    EXPECT_EQ(error, alone ? cudaErrorLaunchTimeout : cudaSuccess);
    EXPECT_EQ(Count(FaultKind::kDeadlock), alone ? 1 : 0);
  }
}

// Two threads that wait for each other by the fakes' other libraries.
TEST(Deadlocks, HostsThatWaitForEachOtherAreFound) {
  Reset({.devices = 1, .host_threads = 2});
  const auto rank = [&](const std::string& why) {
    const HostThread host;
    EXPECT_FALSE(Engine::Get().BlockHost(why, [] { return false; }));
  };
  std::thread first(rank, "creating a communicator"), second(rank, "splitting a communicator");
  first.join();
  second.join();
  ExpectFault(FaultKind::kDeadlock,
              {"waits in creating a communicator", "waits in splitting a communicator"});
}

TEST(Deadlocks, CollectivesOfAKilledDeviceNeverStart) {
  Reset({.devices = 1});
  const cudaStream_t stream = NewStream("a");
  KillPeer(0);
  EXPECT_TRUE(Engine::Get().Killed(0));
  OK(cudaMemsetAsync(NewMemory(8), 0, 8, stream));
  OK(cudaStreamSynchronize(stream));
  Engine::Get().Enqueue(stream, Member(Meet("alone", 1)));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchTimeout);
  ExpectFault(FaultKind::kDeadlock, {"'alone' on device 0 stream 'a' never starts"});
}

// The part of a device that fails while it waits for its peers is gone with the device.
TEST(Deadlocks, PeersOfAFailedDeviceWait) {
  Reset({.devices = 2, .hardware_queues = 1});
  const auto meeting = Meet("meeting");
  const cudaStream_t first = NewStream("a"), behind = NewStream("b");
  Engine::Get().Enqueue(first, Member(meeting));
  Engine::Get().Enqueue(behind, Touch("behind it in its hardware queue", {}));
  OK(cudaStreamSynchronize(behind));  // So it has started.
  FailDevice(0, cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaStreamSynchronize(first), cudaErrorECCUncorrectable);
  OK(cudaSetDevice(1));
  const cudaStream_t second = NewStream("a");
  Engine::Get().Enqueue(second, Member(meeting));
  EXPECT_EQ(cudaStreamSynchronize(second), cudaErrorLaunchTimeout);
  ExpectFault(FaultKind::kDeadlock, {"1 of 2 have started, 1 not even enqueued"});
}

// Whether its kernels have started or not, and only on the device that aborts.
TEST(Deadlocks, AnAbortedMeetingEnds) {
  for (const bool both : {true, false}) {
    Reset({.devices = 2, .processors = 1});
    const auto meeting = Meet("meeting", 3);
    bool ran = false;
    const auto busy = std::make_shared<Meeting>("busy", 1, [&] { ran = true; });
    cudaStream_t streams[2];
    for (int device : {0, 1}) {
      OK(cudaSetDevice(device));
      streams[device] = NewStream("a");
      Engine::Get().Enqueue(streams[device], Member(meeting));
    }
    OK(cudaSetDevice(0));
    if (both) {
      meeting->Abort();
    } else {
      meeting->AbortOn(0);
    }
    OK(cudaStreamSynchronize(streams[0]));
    EXPECT_EQ(cudaStreamSynchronize(streams[1]), both ? cudaSuccess : cudaErrorLaunchTimeout);
    if (both) {
      // Its processors are free again.
      Engine::Get().Enqueue(streams[0], Member(busy));
      OK(cudaStreamSynchronize(streams[0]));
      EXPECT_TRUE(ran);
    }
  }
}

}  // namespace
}  // namespace weft::fakes
