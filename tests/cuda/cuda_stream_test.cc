// Streams and events of the CUDA leaf where they differ from the host's, or are more than it asks.
#include "device/cuda/cuda_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "tests/device/stream_items.h"
#include "tests/fakes/fake.h"
#include "tests/support/device.h"

namespace weft::device {
namespace {

using testing::Gate;
using testing::kForever;
using testing::NewDevice;
using testing::Pass;

class CudaStreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = NewDevice();
  std::unique_ptr<Stream> stream_ = device_->CreateStream("work");
  CudaStream& cuda_ = CudaStream::Of(*stream_);
};

absl::Status Ok() { return absl::OkStatus(); }

TEST_F(CudaStreamTest, MarksBetweenWhichNothingIsEnqueuedAreOne) {
  Nanos time = 0;
  const auto event = device_->CreateEvent();
  stream_->Enqueue(Ok);
  const auto here = *cuda_.Here(/*timed=*/true);
  stream_->Record(*event);
  stream_->RecordTime(&time);
  stream_->EnqueueAlways([](const absl::Status&) {});
  EXPECT_EQ(*cuda_.Here(), here);
  EXPECT_EQ(*cuda_.Here(/*timed=*/true), here);
  stream_->Enqueue(Ok);
  const auto later = *cuda_.Here();
  EXPECT_NE(later, here);
  // A time needs a mark that has one.
  const auto timed = *cuda_.Here(/*timed=*/true);
  EXPECT_NE(timed, later);
  EXPECT_EQ(*cuda_.Here(), timed);
  ASSERT_TRUE(cuda_.WaitFor(*later).ok());
  EXPECT_NE(*cuda_.Here(), timed) << "a wait is work too";
  ASSERT_TRUE(stream_->Synchronize(kForever).ok());
}

TEST_F(CudaStreamTest, MarksOfAStreamThatOthersUseAreNotShared) {
  stream_->Enqueue(Ok);
  const auto before = *cuda_.Here();
  EXPECT_EQ(stream_->native(), cuda_.handle());
  EXPECT_NE(*cuda_.Here(), before);
}

TEST_F(CudaStreamTest, EventsOfMarksAreUsedAgain) {
  cudaEvent_t first = nullptr;
  for (int i = 0; i < 10; ++i) {
    stream_->Enqueue(Ok);
    const auto mark = *cuda_.Here();
    ASSERT_TRUE(stream_->Synchronize(kForever).ok());
    if (i == 0) first = mark->event();
    EXPECT_EQ(mark->event(), first);
    // Lets go of the stream's own.
    stream_->Enqueue(Ok);
  }
}

TEST_F(CudaStreamTest, CallbacksRunInOrderAndAreOverWhenTheStreamIs) {
  std::vector<int> notes;
  std::vector<int> expected;
  for (int i = 0; i < 100; ++i) {
    if (i % 3 == 0) stream_->Enqueue(Ok);
    stream_->EnqueueAlways([&notes, i](const absl::Status&) { notes.push_back(i); });
    expected.push_back(i);
  }
  ASSERT_TRUE(stream_->Synchronize(kForever).ok());
  EXPECT_EQ(notes, expected);
}

TEST_F(CudaStreamTest, ACallbackMayEnqueue) {
  std::atomic<int> ran = 0;
  stream_->EnqueueAlways([&](const absl::Status&) {
    stream_->Enqueue([&] {
      ++ran;
      return absl::OkStatus();
    });
  });
  ASSERT_TRUE(stream_->Synchronize(kForever).ok());
  ASSERT_TRUE(stream_->Synchronize(kForever).ok());
  EXPECT_EQ(ran, 1);
}

TEST_F(CudaStreamTest, RecordingAgainMovesTheEventButNotEarlierWaiters) {
  Gate gate;
  const auto event = device_->CreateEvent();
  const auto early = device_->CreateStream("early");
  const auto late = device_->CreateStream("late");
  stream_->Record(*event);
  early->Wait(*event);
  // The early waiter holds the first point, which nothing blocks.
  EXPECT_TRUE(early->Synchronize(kForever).ok());
  stream_->Enqueue(Pass(gate));
  stream_->Record(*event);
  late->Wait(*event);
  EXPECT_FALSE(*event->Query());
  EXPECT_EQ(late->Synchronize(absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  gate.Open();
  EXPECT_TRUE(late->Synchronize(kForever).ok());
}

TEST_F(CudaStreamTest, TimesAreOfTheDevicesClockAndDoNotRunBackwards) {
  std::vector<Nanos> times(200, -1);
  const Nanos before = device_->clock().Now();
  for (Nanos& time : times) {
    stream_->Enqueue(Ok);
    stream_->RecordTime(&time);
  }
  ASSERT_TRUE(stream_->Synchronize(kForever).ok());
  Nanos latest = before;
  for (const Nanos time : times) {
    EXPECT_GE(time, latest);
    latest = time;
  }
  EXPECT_LE(latest, device_->clock().Now());
}

TEST_F(CudaStreamTest, TimesOfTwoStreamsThatWaitForEachOtherAgree) {
  const auto other = device_->CreateStream("other");
  const auto event = device_->CreateEvent();
  for (int i = 0; i < 50; ++i) {
    Nanos cause = 0, effect = 0;
    stream_->Enqueue(Ok);
    stream_->RecordTime(&cause);
    stream_->Record(*event);
    other->Wait(*event);
    other->Enqueue(Ok);
    other->RecordTime(&effect);
    ASSERT_TRUE(other->Synchronize(kForever).ok());
    ASSERT_TRUE(stream_->Synchronize(kForever).ok());
    EXPECT_LE(cause, effect);
  }
}

// Neither who asked early nor who looks on late moves a time: the host's clock moves between the
// two, the fakes' own by a microsecond with each work.
TEST_F(CudaStreamTest, TimesAreThoseOfTheirPlaces) {
  ManualClock clock;
  const auto device = NewDevice(&clock);
  const auto stream = device->CreateStream("timed");
  Gate gate;
  Nanos first = -1, last = -1;
  stream->Enqueue(Pass(gate));
  stream->RecordTime(&first);
  for (int i = 0; i < 1000; ++i) stream->Enqueue(Ok);
  stream->RecordTime(&last);
  clock.Advance(1'000'000'000);
  gate.Open();
  ASSERT_TRUE(stream->Synchronize(kForever).ok());
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 1'000'000);
  EXPECT_GE(last - first, 1'000'000);
  EXPECT_LT(last - first, 1'010'000);
}

TEST_F(CudaStreamTest, TimesAreWrittenAlsoAfterAFailure) {
  Nanos time = 0;
  stream_->Enqueue([] { return absl::InternalError("late failure"); });
  stream_->RecordTime(&time);
  EXPECT_FALSE(stream_->Synchronize(kForever).ok());
  Nanos again = 0;
  stream_->RecordTime(&again);
  EXPECT_FALSE(stream_->Synchronize(kForever).ok());
  EXPECT_GT(time, 0);
  EXPECT_GE(again, time);
}

TEST_F(CudaStreamTest, AdoptedStreamsTakeWorkAndStayTheCallers) {
  cudaStream_t native = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking), cudaSuccess);
  const auto buffer = *device_->Allocate(4);
  std::uint32_t value = 0;
  {
    const auto adopted = *device_->AdoptStream(native, "trainer");
    EXPECT_EQ(adopted->name(), "trainer");
    EXPECT_EQ(adopted->native(), native);
    const auto event = device_->CreateEvent();
    ASSERT_EQ(cudaMemsetAsync(buffer->data(), 1, 4, native), cudaSuccess);
    adopted->Record(*event);
    // Unseen by Weft: the next record has to notice all the same.
    ASSERT_EQ(cudaMemsetAsync(buffer->data(), 2, 4, native), cudaSuccess);
    adopted->Record(*event);
    ASSERT_TRUE(event->Synchronize(kForever).ok());
    ASSERT_TRUE(device_->CopyNow(&value, buffer->data(), 4).ok());
  }
  EXPECT_EQ(value, 0x02020202u);
  EXPECT_EQ(cudaStreamQuery(native), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(native), cudaSuccess);
}

TEST_F(CudaStreamTest, AdoptedEventsAreWaitedFor) {
  cudaStream_t native = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  const auto buffer = *device_->Allocate(4);
  const auto seen = *device_->AllocateHost(4);
  const auto adopted = *device_->AdoptEvent(event);
  EXPECT_TRUE(*adopted->Query()) << "never recorded";
  ASSERT_EQ(cudaMemsetAsync(buffer->data(), 3, 4, native), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, native), cudaSuccess);
  // Without the wait the fakes report a race.
  stream_->Wait(*adopted);
  device_->Copy(*stream_, seen->data(), buffer->data(), 4);
  ASSERT_TRUE(adopted->Synchronize(kForever).ok());
  ASSERT_TRUE(stream_->Synchronize(kForever).ok());
  EXPECT_EQ(*seen->as<std::uint32_t>(), 0x03030303u);
  EXPECT_EQ(device_->AdoptEvent(nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(native), cudaSuccess);
}

TEST_F(CudaStreamTest, ThreadsKeepTheirCurrentDevice) {
  int current = -1;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const auto buffer = *device_->Allocate(64);
  device_->Clear(*stream_, buffer->data(), 64);
  ASSERT_TRUE(stream_->Synchronize(kForever).ok());
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1);
  {
    const CudaDevice::Current on_device(*CudaDevice::Of(*device_));
    ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 0);
  }
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(CudaStreamTest, AThreadLooksOnWhileAnotherCaptures) {
  // In the global mode, as a trainer's framework may.
  cudaStream_t trainers = nullptr;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&trainers, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(trainers, cudaStreamCaptureModeGlobal), cudaSuccess);
  std::atomic<int> ran = 0;
  Nanos time = 0;
  std::thread other([&] {
    const auto buffer = *device_->Allocate(64);
    device_->Clear(*stream_, buffer->data(), 64);
    stream_->RecordTime(&time);
    stream_->EnqueueAlways([&](const absl::Status&) { ++ran; });
    EXPECT_TRUE(stream_->Synchronize(kForever).ok());
  });
  other.join();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(cudaStreamEndCapture(trainers, &graph), cudaSuccess) << "the capture has been spoilt";
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(trainers), cudaSuccess);
}

TEST_F(CudaStreamTest, SaysWhatItIs) {
  EXPECT_EQ(device_->kind(), "cuda");
  const DeviceIdentity identity = device_->identity();
  EXPECT_NE(identity.name, "");
  EXPECT_EQ(identity.math_library.rfind("cuBLASLt 13.", 0), 0u) << identity.math_library;
  EXPECT_EQ(device_->hardware_queues(), 8);
}

using CudaStreamDeathTest = CudaStreamTest;

TEST_F(CudaStreamDeathTest, AnAdoptedEventIsNotRecorded) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        cudaEvent_t event = nullptr;
        (void)cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        const auto adopted = *device_->AdoptEvent(event);
        stream_->Record(*adopted);
      },
      "stream work records an event that is adopted");
}

}  // namespace
}  // namespace weft::device
