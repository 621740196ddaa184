// Case 30: after the first steps nothing is prepared, allocated or kept any more. A program of its
// own, since it counts all memory that C++ asks for.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/commit.h"
#include "tests/support/forwarding.h"
#include "tests/support/model.h"
#include "tests/support/property.h"
#include "tests/support/way.h"
#include "tests/support/world.h"

namespace {

std::atomic<std::int64_t> live_bytes{0};

}  // namespace

// Every form but those for extended alignment: sanitizers hold each new against its delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
  return memory;
}
void* operator new(std::size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return operator new(bytes, std::nothrow);
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void operator delete(void* memory) noexcept {
  live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }

namespace weft {
namespace {

using testing::RunWorld;
using testing::Way;

struct Calls {
  std::atomic<int> allocate{0}, prepare{0}, streams{0}, events{0};
  std::atomic<std::int64_t> buffer_bytes{0};

  // Everything but bytes: what must not happen inside a step.
  int All() const { return allocate + prepare + streams + events; }
};

class CountedBuffer final : public Buffer {
 public:
  CountedBuffer(std::unique_ptr<Buffer> buffer, Calls& calls)
      : buffer_(std::move(buffer)), calls_(calls) {
    calls_.buffer_bytes += static_cast<std::int64_t>(buffer_->bytes());
  }
  ~CountedBuffer() override { calls_.buffer_bytes -= static_cast<std::int64_t>(buffer_->bytes()); }
  void* data() const override { return buffer_->data(); }
  std::size_t bytes() const override { return buffer_->bytes(); }

 private:
  const std::unique_ptr<Buffer> buffer_;
  Calls& calls_;
};

class CountedMath final : public testing::ForwardingMath {
 public:
  CountedMath(Math& math, Calls& calls) : ForwardingMath(math), calls_(calls) {}
  using ForwardingMath::Prepare;
  absl::Status Prepare(const Product& product) override {
    ++calls_.prepare;
    return inner_.Prepare(product);
  }

 private:
  Calls& calls_;
};

class CountedDevice final : public testing::ForwardingDevice {
 public:
  CountedDevice(Device& device, Calls& calls)
      : ForwardingDevice(device), calls_(calls), math_(device.math(), calls) {}
  std::unique_ptr<Stream> CreateStream(std::string name, StreamPriority priority) override {
    ++calls_.streams;
    return inner_.CreateStream(std::move(name), priority);
  }
  std::unique_ptr<Event> CreateEvent() override {
    ++calls_.events;
    return inner_.CreateEvent();
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) override {
    ++calls_.allocate;
    auto buffer = inner_.Allocate(bytes);
    if (!buffer.ok()) return buffer.status();
    return std::make_unique<CountedBuffer>(*std::move(buffer), calls_);
  }
  Math& math() override { return math_; }

 private:
  Calls& calls_;
  CountedMath math_;
};

class SteadyState : public ::testing::TestWithParam<Way> {};

TEST_P(SteadyState, Case30TwoHundredStepsKeepNothing) {
  constexpr int kSteps = testing::kUnderFakes ? 50 : 200;
  const ProcessGrid grid{2, 2};
  std::vector<std::int64_t> live(kSteps);
  std::barrier all(grid.size());
  RunWorld({.grid = grid}, [&](testing::Rank rank) {
    Calls calls;
    CountedDevice device(rank.device, calls);
    testing::RankModel model({{24, 16}, {16, 24}, {7, 3}, {64, 64}}, GetParam().layout,
                             GradientKind::kLocal, rank.rank, grid.size(), 5);
    auto runtime = testing::Commit(testing::OptionsFor(grid, GetParam().strategy),
                                   {rank.rank, device, rank.transport}, model);
    std::vector<std::vector<float>> gradients;
    for (std::size_t m = 0; m < model.size(); ++m) gradients.push_back(model.Gradient(m, 0));
    EXPECT_GT(calls.allocate, 0);
    EXPECT_GT(calls.buffer_bytes, 0);
    const int before = calls.All();
    const std::int64_t bytes_before = calls.buffer_bytes;
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t m = model.size(); m-- > 0;) {
        const auto job =
            runtime->Submit({.matrix = static_cast<MatrixId>(m), .gradient = gradients[m].data()});
        EXPECT_TRUE(job.ok()) << job.status();
      }
      EXPECT_TRUE(runtime->Step().ok());
      EXPECT_TRUE(runtime->WaitForStep().ok());
      testing::Blocking([&] { all.arrive_and_wait(); });
      if (rank.rank == 0) live[step] = live_bytes;
      testing::Blocking([&] { all.arrive_and_wait(); });
    }
    EXPECT_EQ(calls.All(), before);
    EXPECT_EQ(calls.buffer_bytes, bytes_before);
  });
  // The fakes write down all that was done; and the device has as many events as were ever pending
  // at once, which is a matter of threads' luck.
  if (testing::kUnderFakes) return;
  // The last item of a stream may still be freed when its step is known to be complete: hence
  // middles of many steps. What one rank keeps of each step is 24 bytes or more, 147 times.
  const auto middle = [&](int first, int last) {
    std::vector<std::int64_t> window(live.begin() + first, live.begin() + last);
    std::sort(window.begin(), window.end());
    return window[window.size() / 2];
  };
  EXPECT_LE(middle(kSteps - 50, kSteps) - middle(3, 53), 2000);
}

INSTANTIATE_TEST_SUITE_P(Ways, SteadyState,
                         ::testing::Values(Way{Strategy::kReplicated, Layout::kReplicated},
                                           Way{Strategy::kGather, Layout::kSharded},
                                           Way{Strategy::kOwner, Layout::kReplicated},
                                           Way{Strategy::kOwner, Layout::kSharded}),
                         [](const auto& tested) {
                           return std::string(Name(tested.param.strategy)) + "_" +
                                  std::string(Name(tested.param.layout));
                         });

}  // namespace
}  // namespace weft
