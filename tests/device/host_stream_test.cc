// Streams of the host where CUDA's differ (CreateCudaDevice), or where an item that blocks would
// hold up other streams there.
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <vector>

#include "tests/device/stream_items.h"
#include "weft/device.h"
#include "weft/stream.h"

namespace weft {
namespace {

using testing::Gate;
using testing::kForever;
using testing::Note;
using testing::Pass;

class HostStreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = *CreateHostDevice();
};

TEST_F(HostStreamTest, RecordingAgainMovesTheEventButNotEarlierWaiters) {
  Gate later;
  auto event = device_->CreateEvent();
  auto recorder = device_->CreateStream("recorder");
  auto early = device_->CreateStream("early");
  auto late = device_->CreateStream("late");
  recorder->Record(*event);
  early->Wait(*event);
  recorder->Enqueue(Pass(later));
  recorder->Record(*event);
  late->Wait(*event);
  // The early waiter holds the first point, which nothing blocks.
  EXPECT_TRUE(early->Synchronize(kForever).ok());
  EXPECT_FALSE(*event->Query());
  EXPECT_EQ(late->Synchronize(absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  later.Open();
  EXPECT_TRUE(late->Synchronize(kForever).ok());
}

TEST_F(HostStreamTest, FailureSkipsLaterItemsAndReachesWaiters) {
  std::vector<int> notes;
  absl::Status given;
  auto event = device_->CreateEvent();
  auto first = device_->CreateStream("first");
  auto second = device_->CreateStream("second");
  first->Enqueue([] { return absl::DataLossError("broken"); });
  first->Enqueue(Note(notes, 1));
  first->EnqueueAlways([&](const absl::Status& status) { given = status; });
  first->Enqueue([] { return absl::InternalError("second failure is not the first"); });
  first->Record(*event);
  second->Wait(*event);
  second->Enqueue(Note(notes, 2));
  const absl::Status expected = absl::DataLossError("broken");
  EXPECT_EQ(first->Synchronize(kForever), expected);
  EXPECT_EQ(second->Synchronize(kForever), expected);
  EXPECT_EQ(given, expected);
  EXPECT_EQ(first->status(), expected);
  EXPECT_EQ(event->Query().status(), expected);
  EXPECT_EQ(event->Synchronize(kForever), expected);
  EXPECT_TRUE(notes.empty());
}

TEST_F(HostStreamTest, WhatACallbackThrowsFailsTheStreamUnlessItHasFailed) {
  std::vector<int> notes;
  auto healthy = device_->CreateStream("healthy");
  auto failed = device_->CreateStream("failed");
  int later = 0;
  failed->Enqueue([] { return absl::DataLossError("broken"); });
  for (Stream* stream : {healthy.get(), failed.get()}) {
    stream->EnqueueAlways([](const absl::Status&) { throw std::bad_alloc(); });
    stream->Enqueue(Note(notes, 1));
    stream->EnqueueAlways([&](const absl::Status&) { ++later; });
    (void)stream->Synchronize(kForever);
  }
  EXPECT_EQ(healthy->status(),
            absl::InternalError("an item of stream healthy threw: std::bad_alloc"));
  EXPECT_EQ(failed->status(), absl::DataLossError("broken"));
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(later, 2) << "callbacks after it still run";
}

TEST_F(HostStreamTest, AbortWakesAStreamThatWaits) {
  Gate gate;
  std::vector<int> notes;
  auto event = device_->CreateEvent();
  auto after = device_->CreateEvent();
  auto blocked = device_->CreateStream("blocked");
  auto waiter = device_->CreateStream("waiter");
  blocked->Enqueue(Pass(gate));
  blocked->Record(*event);
  gate.AwaitArrival();
  waiter->Wait(*event);
  waiter->Enqueue(Note(notes, 1));
  waiter->Record(*after);
  waiter->Abort(absl::AbortedError("enough"));
  waiter->Abort(absl::InternalError("too late"));
  EXPECT_EQ(waiter->Synchronize(kForever), absl::AbortedError("enough"));
  EXPECT_EQ(after->Synchronize(kForever), absl::AbortedError("enough"));
  EXPECT_TRUE(notes.empty());
  EXPECT_TRUE(blocked->status().ok());
  gate.Open();
  EXPECT_TRUE(blocked->Synchronize(kForever).ok());
}

TEST_F(HostStreamTest, AbortWakesAStreamThatAlreadyBlocks) {
  // Many rounds, so that the abort meets the worker before, in and after its wait.
  for (int round = 0; round < 200; ++round) {
    Gate gate;
    Gate started;
    started.Open();
    auto event = device_->CreateEvent();
    auto blocked = device_->CreateStream("blocked");
    auto waiter = device_->CreateStream("waiter");
    blocked->Enqueue(Pass(gate));
    blocked->Record(*event);
    waiter->Enqueue(Pass(started));
    waiter->Wait(*event);
    started.AwaitArrival();
    waiter->Abort(absl::AbortedError("enough"));
    ASSERT_EQ(waiter->Synchronize(kForever), absl::AbortedError("enough"));
    gate.Open();
  }
}

TEST_F(HostStreamTest, RecordTimeReadsTheDevicesClockAlsoAfterAFailure) {
  ManualClock clock;
  clock.Advance(7);
  auto device = *CreateHostDevice({.clock = &clock});
  EXPECT_EQ(&device->clock(), &clock);
  Nanos before = 0;
  Nanos between = 0;
  Nanos after = 0;
  auto stream = device->CreateStream("timed");
  stream->RecordTime(&before);
  stream->Enqueue([&] {
    clock.Advance(10);
    return absl::OkStatus();
  });
  stream->RecordTime(&between);
  stream->Enqueue([&] {
    clock.Advance(100);
    return absl::InternalError("late failure");
  });
  stream->RecordTime(&after);
  EXPECT_FALSE(stream->Synchronize(kForever).ok());
  EXPECT_EQ(before, 7);
  EXPECT_EQ(between, 17);
  EXPECT_EQ(after, 117);
}

}  // namespace
}  // namespace weft
