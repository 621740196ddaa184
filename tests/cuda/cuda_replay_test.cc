// Replays as CUDA graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/cuda/cuda_stream.h"
#include "tests/device/operand.h"
#include "tests/device/stream_items.h"
#include "tests/fakes/fake.h"
#include "tests/support/device.h"

namespace weft::device {
namespace {

using testing::Gate;
using ::testing::HasSubstr;
using testing::kForever;
using testing::NewDevice;
using testing::Operand;
using testing::Pass;

class CudaReplayTest : public ::testing::Test {
 protected:
  // D = A A^T of A = A / ||A||, and its first row behind it.
  absl::Status Enqueue(Stream& stream, Operand& a, Operand& d, Buffer& copy) {
    Math& math = device_->math();
    absl::Status status = math.Normalize(stream, a.matrix(), false, 0, false, normal_.matrix());
    status.Update(math.MatMul(stream, {.a = normal_.matrix(),
                                       .b = normal_.matrix(),
                                       .transpose_b = true,
                                       .d = d.matrix(),
                                       .symmetric = true}));
    device_->Clear(stream, copy.data(), copy.bytes());
    device_->Copy(stream, copy.data(), row_->data(), 4);
    return status;
  }

  std::unique_ptr<Device> device_ = NewDevice();
  std::unique_ptr<Stream> stream_ = device_->CreateStream("work");
  Operand normal_{DType::kF32, 20, 30};
  std::unique_ptr<Buffer> row_ = [this] {
    auto buffer = *device_->Allocate(4);
    const float one = 1;
    EXPECT_TRUE(device_->CopyNow(buffer->data(), &one, 4).ok());
    return buffer;
  }();
};

TEST_F(CudaReplayTest, EqualsWhatIsEnqueuedDirectlyEachTime) {
  std::mt19937_64 random(1);
  Operand a(DType::kF32, 20, 30), direct(DType::kF32, 20, 20), replayed(DType::kF32, 20, 20);
  const auto copy = *device_->Allocate(64);
  const auto replay = *device_->Record([&](Stream& on) { return Enqueue(on, a, replayed, *copy); });
  // Nothing has run yet.
  EXPECT_EQ(replayed.at(0, 0, 0), Operand(DType::kF32, 20, 20).at(0, 0, 0));
  for (int i = 0; i < 5; ++i) {
    a.FillNormal(random);
    ASSERT_TRUE(Enqueue(*stream_, a, direct, *copy).ok());
    ASSERT_TRUE(replay->Enqueue(*stream_).ok());
    ASSERT_TRUE(stream_->Synchronize(kForever).ok());
    EXPECT_EQ(direct.bytes(), replayed.bytes());
    float one = 0;
    ASSERT_TRUE(device_->CopyNow(&one, copy->data(), 4).ok());
    EXPECT_EQ(one, 1);
  }
}

TEST_F(CudaReplayTest, MayBeLetGoWhileItRuns) {
  std::mt19937_64 random(2);
  Operand a(DType::kF32, 20, 30), direct(DType::kF32, 20, 20), replayed(DType::kF32, 20, 20);
  const auto copy = *device_->Allocate(64);
  a.FillNormal(random);
  ASSERT_TRUE(Enqueue(*stream_, a, direct, *copy).ok());
  auto replay = *device_->Record([&](Stream& on) { return Enqueue(on, a, replayed, *copy); });
  Gate gate;
  stream_->Enqueue(Pass(gate));
  ASSERT_TRUE(replay->Enqueue(*stream_).ok());
  ASSERT_TRUE(replay->Enqueue(*stream_).ok());
  replay.reset();
  EXPECT_EQ(stream_->Synchronize(absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  gate.Open();
  ASSERT_TRUE(stream_->Synchronize(kForever).ok());
  EXPECT_EQ(direct.bytes(), replayed.bytes());
}

TEST_F(CudaReplayTest, HasAWorkspaceOfItsOwn) {
  // Two replays and direct products side by side on three streams: the fakes write on every
  // workspace and report whoever shares one.
  std::mt19937_64 random(3);
  Operand a(DType::kF32, 40, 90);
  a.FillNormal(random);
  std::vector<Operand> results(3, Operand(DType::kF32, 40, 40));
  const auto product = [&](Stream& on, Operand& d) {
    return device_->math().MatMul(
        on, {.a = a.matrix(), .b = a.matrix(), .transpose_b = true, .d = d.matrix()});
  };
  std::vector<std::unique_ptr<Replay>> replays;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 2; ++i) {
    replays.push_back(*device_->Record([&](Stream& on) { return product(on, results[i]); }));
    streams.push_back(device_->CreateStream("s" + std::to_string(i)));
  }
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(replays[i]->Enqueue(*streams[i]).ok());
    ASSERT_TRUE(product(*stream_, results[2]).ok());
  }
  for (const auto& stream : streams) ASSERT_TRUE(stream->Synchronize(kForever).ok());
  ASSERT_TRUE(stream_->Synchronize(kForever).ok());
  EXPECT_EQ(results[0].bytes(), results[2].bytes());
  EXPECT_EQ(results[1].bytes(), results[2].bytes());
}

TEST_F(CudaReplayTest, TakesNoEventsTimesAndHostFunctions) {
  const auto event = device_->CreateEvent();
  Nanos time = 0;
  const std::vector<std::function<void(Stream&)>> forbidden = {
      [&](Stream& on) { on.Record(*event); }, [&](Stream& on) { on.Wait(*event); },
      [&](Stream& on) { on.RecordTime(&time); },
      [](Stream& on) { on.Enqueue([] { return absl::OkStatus(); }); },
      [](Stream& on) { on.EnqueueAlways([](const absl::Status&) {}); }};
  for (const auto& enqueue : forbidden) {
    const auto replay = device_->Record([&](Stream& on) {
      enqueue(on);
      return absl::OkStatus();
    });
    EXPECT_EQ(replay.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(replay.status().message()), HasSubstr("a replay has no "));
  }
}

TEST_F(CudaReplayTest, PassesOnTheErrorsOfItsWork) {
  EXPECT_EQ(
      device_->Record([](Stream&) { return absl::InvalidArgumentError("no such shape"); }).status(),
      absl::InvalidArgumentError("no such shape"));
  EXPECT_EQ(device_->Record([](Stream&) -> absl::Status { throw 7; }).status().code(),
            absl::StatusCode::kInternal);
  // The thread captures no longer.
  const auto buffer = *device_->Allocate(4);
  device_->Clear(*stream_, buffer->data(), 4);
  EXPECT_TRUE(stream_->Synchronize(kForever).ok());
}

TEST_F(CudaReplayTest, IsDroppedByAStreamThatHasFailed) {
  const auto buffer = *device_->Allocate(4);
  const auto replay = *device_->Record([&](Stream& on) {
    device_->Clear(on, buffer->data(), 4);
    return absl::OkStatus();
  });
  stream_->Abort(absl::AbortedError("enough"));
  EXPECT_TRUE(replay->Enqueue(*stream_).ok());
  EXPECT_EQ(stream_->Synchronize(kForever), absl::AbortedError("enough"));
}

}  // namespace
}  // namespace weft::device
