// Random programs of streams, events, copies and products, over many orders in which a device that
// lags behind the host may run them: the results are those of one stream, and no access is ordered
// by chance.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/cuda/make.h"
#include "tests/fakes/fake.h"
#include "tests/support/blocking_clock.h"
#include "tests/support/seed.h"
#include "weft/device.h"

namespace weft::device {
namespace {

constexpr std::int64_t kSide = 12;
constexpr std::int64_t kCount = kSide * kSide;
constexpr std::size_t kBytes = kCount * sizeof(float);
constexpr int kMatrices = 5;
constexpr int kSteps = 40;

struct Step {
  enum Kind { kCopy, kConvert, kAdd, kProduct, kReplay, kTime, kCallback } kind;
  int from, to, stream;
};

std::vector<Step> Program(std::mt19937_64& random, int streams) {
  std::vector<Step> steps;
  for (int i = 0; i < kSteps; ++i) {
    Step step{};
    step.kind = static_cast<Step::Kind>(random() % 7);
    step.from = static_cast<int>(random() % kMatrices);
    step.to = static_cast<int>((step.from + 1 + random() % (kMatrices - 1)) % kMatrices);
    step.stream = static_cast<int>(random() % static_cast<std::uint64_t>(streams));
    steps.push_back(step);
  }
  return steps;
}

class Matrices {
 public:
  explicit Matrices(Device& device) : device_(device) {
    for (int i = 0; i < kMatrices; ++i) {
      buffers_.push_back(*device.Allocate(kBytes));
      std::vector<float> values(kCount);
      for (std::int64_t k = 0; k < kCount; ++k) {
        values[static_cast<std::size_t>(k)] = static_cast<float>((k * (i + 3)) % 7) / 8;
      }
      EXPECT_TRUE(device.CopyNow(buffers_.back()->data(), values.data(), kBytes).ok());
    }
  }

  Matrix At(int i) {
    return Matrix::Dense(buffers_[static_cast<std::size_t>(i)]->data(), DType::kF32, kSide, kSide);
  }

  // Values stay bounded: products are scaled.
  absl::Status Do(const Step& step, Stream& stream) {
    Math& math = device_.math();
    const Matrix from = At(step.from), to = At(step.to);
    switch (step.kind) {
      case Step::kCopy:
        device_.Copy(stream, to.data, from.data, kBytes);
        return absl::OkStatus();
      case Step::kConvert:
        return math.Convert(stream, from, /*transpose=*/true, to);
      case Step::kAdd:
        return math.Add(stream, kCount, from.data, to.data, DType::kF32);
      default:
        return math.MatMul(stream, {.a = from,
                                    .b = from,
                                    .transpose_b = true,
                                    .alpha = 0x1p-6f,
                                    .d = to,
                                    .symmetric = true});
    }
  }

  std::vector<float> Values() {
    std::vector<float> all(kMatrices * kCount);
    for (int i = 0; i < kMatrices; ++i) {
      EXPECT_TRUE(device_.CopyNow(all.data() + i * kCount, At(i).data, kBytes).ok());
    }
    return all;
  }

 private:
  Device& device_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// Reads before it a matrix's last write, and writes behind all that used it.
std::vector<float> Run(Device& device, const std::vector<Step>& steps, int stream_count) {
  Matrices matrices(device);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < stream_count; ++i) {
    streams.push_back(device.CreateStream("s" + std::to_string(i)));
  }
  std::vector<std::unique_ptr<Event>> used;  // by matrix
  for (int i = 0; i < kMatrices; ++i) used.push_back(device.CreateEvent());
  std::vector<std::unique_ptr<Replay>> replays;
  std::vector<Nanos> times(steps.size(), 0);
  std::vector<int> called;
  std::vector<int> expected;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    Stream& stream = *streams[static_cast<std::size_t>(step.stream)];
    if (step.kind == Step::kTime) {
      stream.RecordTime(&times[i]);
      continue;
    }
    if (step.kind == Step::kCallback) {
      if (step.stream != 0) continue;
      stream.EnqueueAlways([&called, i](const absl::Status& status) {
        called.push_back(status.ok() ? static_cast<int>(i) : -1);
      });
      expected.push_back(static_cast<int>(i));
      continue;
    }
    for (const int matrix : {step.from, step.to})
      stream.Wait(*used[static_cast<std::size_t>(matrix)]);
    if (step.kind == Step::kReplay) {
      replays.push_back(*device.Record([&](Stream& on) { return matrices.Do(step, on); }));
      EXPECT_TRUE(replays.back()->Enqueue(stream).ok());
      // Let go now and then while it is under way.
      if (i % 2 == 0) replays.clear();
    } else {
      EXPECT_TRUE(matrices.Do(step, stream).ok());
    }
    for (const int matrix : {step.from, step.to}) {
      stream.Record(*used[static_cast<std::size_t>(matrix)]);
    }
  }
  for (const auto& stream : streams) {
    EXPECT_TRUE(stream->Synchronize(absl::InfiniteDuration()).ok());
  }
  EXPECT_EQ(called, expected);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(times[i] != 0, steps[i].kind == Step::kTime);
  }
  return matrices.Values();
}

std::vector<float> RunUnderFakes(const fakes::Options& options, const std::vector<Step>& steps,
                                 int streams) {
  fakes::Reset(options);
  std::vector<float> values;
  {
    const fakes::HostThread host_thread;
    testing::BlockingClock clock;
    const auto device = *MakeCudaDevice({.workspace_bytes = 1 << 16, .clock = &clock});
    values = Run(*device, steps, streams);
  }
  fakes::CheckLeaks();
  EXPECT_EQ(fakes::FaultText(), "");
  return values;
}

TEST(CudaSeeds, EveryOrderGivesWhatOneStreamGives) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t seed = testing::Seed() + i;
    std::mt19937_64 random(seed);
    const int streams = 2 + static_cast<int>(random() % 3);
    std::vector<Step> steps = Program(random, streams);
    const fakes::Options options{.devices = 1,
                                 .seed = seed,
                                 .pace = i % 2 == 0 ? fakes::Pace::kLagging : fakes::Pace::kEager,
                                 .hardware_queues = i % 3 == 0 ? 1 : 0};
    const std::vector<float> got = RunUnderFakes(options, steps, streams);
    for (Step& step : steps) step.stream = 0;
    const std::vector<float> expected = RunUnderFakes(options, steps, 1);
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
        << "seed " << seed;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weft::device
