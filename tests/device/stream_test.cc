#include "weft/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/device/stream_items.h"
#include "tests/support/device.h"
#include "weft/device.h"

namespace weft {
namespace {

using testing::Gate;
using testing::kForever;
using testing::NewDevice;
using testing::Note;
using testing::Pass;

class StreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = NewDevice();
};

TEST_F(StreamTest, RunsItemsInOrder) {
  std::vector<int> notes;
  std::vector<int> expected;
  auto stream = device_->CreateStream("order");
  EXPECT_EQ(stream->name(), "order");
  for (int i = 0; i < 1000; ++i) {
    stream->Enqueue(Note(notes, i));
    expected.push_back(i);
  }
  EXPECT_TRUE(stream->Synchronize(kForever).ok());
  EXPECT_EQ(notes, expected);
}

TEST_F(StreamTest, DestructionDrains) {
  std::vector<int> notes;
  auto stream = device_->CreateStream("drain");
  for (int i = 0; i < 100; ++i) stream->Enqueue(Note(notes, i));
  stream.reset();
  EXPECT_EQ(notes.size(), 100u);
}

TEST_F(StreamTest, SynchronizeCoversOnlyWhatWasEnqueuedBefore) {
  Gate gate;
  auto stream = device_->CreateStream("sync");
  stream->Enqueue([] { return absl::OkStatus(); });
  EXPECT_TRUE(stream->Synchronize(kForever).ok());
  stream->Enqueue(Pass(gate));
  EXPECT_EQ(stream->Synchronize(absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  gate.Open();
  EXPECT_TRUE(stream->Synchronize(kForever).ok());
}

TEST_F(StreamTest, SynchronizeTakesItsDeadlineFromTheDevicesClock) {
  ManualClock clock;
  auto device = NewDevice(&clock);
  Gate gate;
  auto stream = device->CreateStream("late");
  stream->Enqueue(Pass(gate));
  std::atomic<bool> returned = false;
  absl::Status result;
  std::thread host([&] {
    result = stream->Synchronize(absl::Microseconds(1));
    returned = true;
  });
  // Moved until the host gives up: it may begin to wait after any of these steps.
  while (!returned) clock.Advance(1000);
  host.join();
  EXPECT_EQ(result.code(), absl::StatusCode::kDeadlineExceeded);
  gate.Open();
}

TEST_F(StreamTest, AnEventNeverRecordedIsComplete) {
  auto event = device_->CreateEvent();
  EXPECT_TRUE(*event->Query());
  EXPECT_TRUE(event->Synchronize(absl::ZeroDuration()).ok());
  auto stream = device_->CreateStream("waiter");
  stream->Wait(*event);
  EXPECT_TRUE(stream->Synchronize(kForever).ok());
}

TEST_F(StreamTest, AnEventOrdersTwoStreams) {
  Gate gate;
  int value = 0;
  int seen = -1;
  auto event = device_->CreateEvent();
  auto first = device_->CreateStream("first");
  auto second = device_->CreateStream("second");
  first->Enqueue(Pass(gate));
  first->Enqueue([&] {
    value = 5;
    return absl::OkStatus();
  });
  first->Record(*event);
  second->Wait(*event);
  second->Enqueue([&] {
    seen = value;
    return absl::OkStatus();
  });
  EXPECT_FALSE(*event->Query());
  EXPECT_EQ(event->Synchronize(absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  gate.Open();
  EXPECT_TRUE(second->Synchronize(kForever).ok());
  EXPECT_EQ(seen, 5);
  EXPECT_TRUE(*event->Query());
}

TEST_F(StreamTest, AnEventMayDieWhileAwaited) {
  Gate gate;
  auto event = device_->CreateEvent();
  auto first = device_->CreateStream("first");
  auto second = device_->CreateStream("second");
  first->Enqueue(Pass(gate));
  first->Record(*event);
  second->Wait(*event);
  event.reset();
  gate.Open();
  EXPECT_TRUE(second->Synchronize(kForever).ok());
}

TEST_F(StreamTest, WhatAnItemThrowsIsItsError) {
  std::vector<int> notes;
  absl::Status given;
  auto event = device_->CreateEvent();
  auto stream = device_->CreateStream("thrower");
  stream->Enqueue([]() -> absl::Status { throw std::runtime_error("no such tensor"); });
  stream->Enqueue(Note(notes, 1));
  stream->EnqueueAlways([&](const absl::Status& status) { given = status; });
  stream->Record(*event);
  const absl::Status expected =
      absl::InternalError("an item of stream thrower threw: no such tensor");
  EXPECT_EQ(stream->Synchronize(kForever), expected);
  EXPECT_EQ(stream->status(), expected);
  EXPECT_EQ(event->Synchronize(kForever), expected);
  EXPECT_EQ(given, expected);
  EXPECT_TRUE(notes.empty());
}

TEST_F(StreamTest, WhatAnItemThrowsNeedNotBeAStandardException) {
  auto stream = device_->CreateStream("thrower");
  stream->Enqueue([]() -> absl::Status { throw 7; });
  EXPECT_EQ(
      stream->Synchronize(kForever),
      absl::InternalError("an item of stream thrower threw something that is no std::exception"));
}

TEST_F(StreamTest, AFailedEventIsForgottenOnceRecordedElsewhere) {
  auto event = device_->CreateEvent();
  auto bad = device_->CreateStream("bad");
  auto good = device_->CreateStream("good");
  bad->Enqueue([] { return absl::InternalError("bad"); });
  bad->Record(*event);
  EXPECT_FALSE(event->Synchronize(kForever).ok());
  good->Record(*event);
  EXPECT_TRUE(event->Synchronize(kForever).ok());
}

TEST_F(StreamTest, WhatAnItemOwnsIsGoneWhenTheStreamIsSynchronized) {
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  auto stream = device_->CreateStream("owner");
  stream->Enqueue([owned = std::move(owned)] { return absl::OkStatus(); });
  EXPECT_TRUE(stream->Synchronize(kForever).ok());
  EXPECT_TRUE(watch.expired());
}

TEST_F(StreamTest, AcceptsWorkFromManyThreads) {
  std::vector<int> notes;
  auto stream = device_->CreateStream("shared");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 250; ++i) stream->Enqueue(Note(notes, t * 1000 + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(stream->Synchronize(kForever).ok());
  ASSERT_EQ(notes.size(), 1000u);
  // Each thread's own items keep their order.
  std::vector<int> next(4, 0);
  for (const int note : notes) EXPECT_EQ(note % 1000, next[note / 1000]++);
}

using StreamDeathTest = StreamTest;

TEST_F(StreamDeathTest, AbortNeedsACause) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(device_->CreateStream("s")->Abort(absl::OkStatus()), "aborted with an OK status");
}

}  // namespace
}  // namespace weft
