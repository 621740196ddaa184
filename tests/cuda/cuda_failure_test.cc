// What becomes of streams, events, memory and devices of the CUDA leaf when something fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/make.h"
#include "tests/device/stream_items.h"
#include "tests/fakes/fake.h"
#include "tests/support/device.h"

namespace weft::device {
namespace {

using testing::Gate;
using ::testing::HasSubstr;
using testing::kForever;
using testing::NewDevice;
using testing::Note;
using testing::Pass;

class CudaFailureTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = NewDevice();
  std::unique_ptr<Stream> stream_ = device_->CreateStream("work");
};

TEST_F(CudaFailureTest, AnItemsErrorReachesEventsAndCallbacksBehindItAlone) {
  std::vector<int> notes;
  absl::Status before_it = absl::UnknownError("not run");
  absl::Status behind_it = absl::UnknownError("not run");
  const auto before = device_->CreateEvent();
  const auto behind = device_->CreateEvent();
  Gate gate;
  stream_->Enqueue(Pass(gate));
  stream_->Record(*before);
  stream_->EnqueueAlways([&](const absl::Status& status) { before_it = status; });
  stream_->Enqueue([] { return absl::DataLossError("broken"); });
  stream_->Enqueue(Note(notes, 1));
  stream_->Record(*behind);
  stream_->EnqueueAlways([&](const absl::Status& status) { behind_it = status; });
  gate.Open();
  const absl::Status expected = absl::DataLossError("broken");
  EXPECT_EQ(behind->Synchronize(kForever), expected);
  EXPECT_EQ(stream_->Synchronize(kForever), expected);
  EXPECT_EQ(stream_->status(), expected);
  EXPECT_TRUE(before->Synchronize(kForever).ok());
  EXPECT_EQ(before_it, absl::OkStatus());
  EXPECT_EQ(behind_it, expected);
  EXPECT_TRUE(notes.empty());
  // Known by now: a waiter fails with it, and nothing more is enqueued.
  const auto waiter = device_->CreateStream("waiter");
  waiter->Wait(*before);
  EXPECT_TRUE(waiter->status().ok());
  waiter->Wait(*behind);
  EXPECT_EQ(waiter->status(), expected);
  waiter->Enqueue(Note(notes, 2));
  stream_->Enqueue(Note(notes, 3));
  EXPECT_EQ(waiter->Synchronize(kForever), expected);
  EXPECT_EQ(stream_->Synchronize(kForever), expected);
  EXPECT_TRUE(notes.empty());
}

TEST_F(CudaFailureTest, WhatWaitsBeforeAFailureIsKnownRunsAllTheSame) {
  std::vector<int> notes;
  Gate gate;
  const auto event = device_->CreateEvent();
  const auto waiter = device_->CreateStream("waiter");
  stream_->Enqueue(Pass(gate));
  stream_->Enqueue([] { return absl::DataLossError("broken"); });
  stream_->Record(*event);
  waiter->Wait(*event);
  waiter->Enqueue(Note(notes, 1));
  gate.Open();
  EXPECT_TRUE(waiter->Synchronize(kForever).ok());
  EXPECT_EQ(notes, std::vector<int>{1});
  EXPECT_FALSE(stream_->Synchronize(kForever).ok());
}

TEST_F(CudaFailureTest, WhatACallbackThrowsFailsTheStreamUnlessItHasFailed) {
  std::atomic<int> later = 0;
  stream_->EnqueueAlways([](const absl::Status&) { throw std::bad_alloc(); });
  stream_->EnqueueAlways([&](const absl::Status& status) { later += status.ok() ? 100 : 1; });
  const absl::Status expected = absl::InternalError("an item of stream work threw: std::bad_alloc");
  EXPECT_EQ(stream_->Synchronize(kForever), expected);
  EXPECT_EQ(later, 1) << "the callback behind it runs, with its error";
  stream_->EnqueueAlways([](const absl::Status&) { throw 7; });
  EXPECT_EQ(stream_->Synchronize(kForever), expected);
}

TEST_F(CudaFailureTest, AnAbortRunsCallbacksAtOnceAndSynchronizeWaitsForTheDevice) {
  Gate gate;
  std::atomic<int> ran = 0;
  Nanos time = -1;
  absl::Status given;
  const auto unreached = device_->CreateEvent();
  const auto later = device_->CreateEvent();
  const auto over = device_->CreateEvent();
  stream_->Enqueue([] { return absl::OkStatus(); });
  stream_->Record(*over);
  ASSERT_TRUE(over->Synchronize(kForever).ok());
  stream_->Enqueue(Pass(gate));
  stream_->RecordTime(&time);
  stream_->Record(*unreached);
  stream_->EnqueueAlways([&](const absl::Status& status) {
    given = status;
    ++ran;
  });
  const absl::Status cause = absl::AbortedError("enough");
  stream_->Abort(cause);
  stream_->Abort(absl::InternalError("too late"));
  // The item still blocks: who looks at events and callbacks does not wait for it, the owner of the
  // memory that it uses does.
  EXPECT_EQ(unreached->Synchronize(kForever), cause);
  EXPECT_TRUE(over->Synchronize(kForever).ok()) << "reached before the abort";
  stream_->Record(*later);
  EXPECT_EQ(later->Synchronize(kForever), cause);
  EXPECT_EQ(stream_->Synchronize(absl::Milliseconds(5)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(time, -1);
  gate.Open();
  EXPECT_EQ(stream_->Synchronize(kForever), cause);
  EXPECT_EQ(given, cause);
  EXPECT_GT(time, 0);
}

TEST_F(CudaFailureTest, ACallThatIsRefusedFailsTheStreamInOneSentence) {
  device_->Clear(*stream_, nullptr, 64);
  EXPECT_EQ(stream_->status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(stream_->status().message()),
              ::testing::StartsWith("cudaMemsetAsync on stream work of CUDA device 0 failed: "));
  // The fakes count it as a misuse, which it is.
  EXPECT_THAT(fakes::FaultText(), HasSubstr("cudaMemsetAsync"));
  stream_.reset();
  device_.reset();
  fakes::Reset({.devices = 2});
}

TEST_F(CudaFailureTest, NoMemoryIsOneSentenceAndLeavesNoError) {
  fakes::FailAllocation(0, 0);
  const auto buffer = device_->Allocate(1000);
  EXPECT_EQ(buffer.status(),
            absl::ResourceExhaustedError("CUDA device 0 has no memory for a buffer of 1000 bytes"));
  fakes::FailAllocation(0, 0);
  EXPECT_EQ(device_->AllocateHost(1000).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_TRUE(device_->Allocate(1000).ok());
}

// CUDA may wait for all work of the device that is current: that of the memory, or this hangs.
TEST_F(CudaFailureTest, PageLockedMemoryIsFreedBesideAnotherDevicesWork) {
  const auto other = *MakeCudaDevice({.ordinal = 1});
  auto buffer = *other->AllocateHost(64);
  Gate gate;
  stream_->Enqueue(Pass(gate));
  gate.AwaitArrival();
  buffer.reset();
  gate.Open();
  EXPECT_TRUE(stream_->Synchronize(kForever).ok());
}

TEST_F(CudaFailureTest, AProductWithoutRoomToWorkIsRefusedAndEnqueuesNothing) {
  std::vector<float> x(64, 1.0f);
  const Matrix square = Matrix::Dense(x.data(), DType::kF32, 8, 8);
  Matrix d = square;
  std::vector<float> result(64, -1.0f);
  d.data = result.data();
  fakes::FailAllocation(0, 0);
  EXPECT_EQ(device_->math().MatMul(*stream_, {.a = square, .b = square, .d = d}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(stream_->Synchronize(kForever).ok());
  EXPECT_EQ(result, std::vector<float>(64, -1.0f));
  ASSERT_TRUE(device_->math().MatMul(*stream_, {.a = square, .b = square, .d = d}).ok());
  EXPECT_TRUE(stream_->Synchronize(kForever).ok());
  EXPECT_EQ(result, std::vector<float>(64, 8.0f));
}

TEST_F(CudaFailureTest, AFailedDeviceEndsEverythingWithItsError) {
  Gate gate;
  std::atomic<int> ran = 0;
  Nanos time = -1;
  absl::Status given;
  const auto event = device_->CreateEvent();
  stream_->Enqueue([] { return absl::OkStatus(); });
  stream_->Record(*event);
  stream_->RecordTime(&time);
  fakes::FailDevice(0, cudaErrorECCUncorrectable);
  stream_->EnqueueAlways([&](const absl::Status& status) {
    given = status;
    ++ran;
  });
  const absl::Status status = stream_->Synchronize(kForever);
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA device 0 failed: "));
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(given.ok());
  EXPECT_GT(time, 0);
  EXPECT_FALSE(event->Synchronize(kForever).ok());
  EXPECT_FALSE(device_->Allocate(100).ok());
  // Nothing hangs at the end, and nothing is destroyed that could.
  stream_.reset();
  device_.reset();
  fakes::Reset({.devices = 2});
}

TEST(CudaDevices, ThatAreNotThereAreRefused) {
  const auto device = MakeCudaDevice({.ordinal = 2});
  EXPECT_EQ(device.status(), absl::FailedPreconditionError("there is no CUDA device 2 among 2"));
  EXPECT_EQ(MakeCudaDevice({.reserved_processors = 1000}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft::device
