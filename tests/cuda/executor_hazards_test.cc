// The hazards of several communicators on a device (tests/fakes/hazards_test.cc has the programs
// that hang, by the same letters), with whole runtimes where those programs hang or race: room for
// one collective, one hardware queue, calls of NCCL that take their time, gradients in an order of
// each rank's own, hosts that wait in between, communicators and peers that fail in the middle of a
// step.
//
// Run with NCCL_LAUNCH_ORDER_IMPLICIT=1, so that both launch orders can be asked for.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/cuda/stream_trainer.h"
#include "tests/fakes/fake.h"
#include "tests/support/fake_world.h"
#include "tests/support/property.h"
#include "tests/support/seed.h"
#include "weft/clock.h"
#include "weft/communicator.h"

namespace weft {
namespace {

using fakes::FaultKind;
using ::testing::AllOf;
using ::testing::AnyOf;
using testing::FakeWorld;
using ::testing::HasSubstr;
using testing::kSanitized;
using testing::Moment;
using testing::Scenario;
using testing::WeightsByRank;

constexpr int kSteps = 3;  // one more than may be under way
constexpr int kMatrices = 6;
constexpr int kRanks = 4;  // two nodes of two, so that each rank is in two or three communicators
constexpr std::array kOrders = {LaunchOrder::kSerialized, LaunchOrder::kImplicit};

// Where hazards_test.cc's programs hang. Each has room for one collective at a time.
fakes::Options TightDevice(std::uint64_t which) {
  fakes::Options options;
  options.sum_order = fakes::SumOrder::kAscending;
  options.channels = which % 3 == 0 ? 1 : 2;
  options.processors = options.channels;
  // Streams that cannot overtake, and streams whose turn is the device's choice.
  options.hardware_queues = which % 3 == 1 ? 8 : 1;
  options.in_progress_polls = which % 2 == 0 ? 3 : 0;
  options.pace = which / 2 % 2 == 0 ? fakes::Pace::kLagging : fakes::Pace::kEager;
  return options;
}

void SetWorld(LaunchOrder order, const fakes::Options& options) {
  FakeWorld() = {.fakes = options, .launch_order = order};
  FakeWorld().fakes.implicit_launch_order = order == LaunchOrder::kImplicit;
}

Scenario ScenarioOf(const std::string& name) {
  for (Scenario& each : testing::Scenarios()) {
    if (each.name == name) return std::move(each);
  }
  ADD_FAILURE() << "there is no scenario " << name;
  return {};
}

std::string NameOf(LaunchOrder order) {
  return order == LaunchOrder::kSerialized ? "serialized" : "implicit";
}

struct ExecutorHazardsOnce : ::testing::Test {
  void SetUp() override { FakeWorld() = {}; }
  void TearDown() override { FakeWorld() = {}; }
};
// Of a test for each launch order.
struct ExecutorHazards : ExecutorHazardsOnce, ::testing::WithParamInterface<LaunchOrder> {};
INSTANTIATE_TEST_SUITE_P(Orders, ExecutorHazards, ::testing::ValuesIn(kOrders),
                         [](const auto& tested) { return NameOf(tested.param); });

// ---- A, D.31, D.32: what every plan does, on tight devices.

struct OnTightDevices : ExecutorHazardsOnce, ::testing::WithParamInterface<Scenario> {};

// A.1 to A.6, A.9, A.10, A.12, A.13, D.31, D.32.
TEST_P(OnTightDevices, GradientsComeInAnotherOrderOnEachRank) {
  const WeightsByRank expected = TrainOnStreams(GetParam(), kSteps);
  Scenario scenario = GetParam();
  // Those of an owned layer follow its use.
  if (scenario.layout != Layout::kOwned) scenario.order = testing::Seed() | 1;
  for (const LaunchOrder order : kOrders) {
    const std::uint64_t which = testing::Seed() + std::hash<std::string>{}(scenario.name) +
                                (order == LaunchOrder::kImplicit ? 7 : 0);
    SCOPED_TRACE(absl::StrCat(NameOf(order), ", device ", which % 12));
    SetWorld(order, TightDevice(which));
    EXPECT_EQ(TrainOnStreams(scenario, kSteps), expected);
  }
}

std::vector<Scenario> OfFourRanks() {
  std::vector<Scenario> all = testing::Scenarios();
  std::erase_if(all, [](const Scenario& each) { return each.grid.size() != kRanks; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ways, OnTightDevices, ::testing::ValuesIn(OfFourRanks()),
                         [](const auto& tested) { return tested.param.name; });

// One plan on many of them.
TEST_P(ExecutorHazards, AnyTightDeviceGivesTheSameWeights) {
  Scenario scenario = ScenarioOf("turns_2x2");
  const WeightsByRank expected = TrainOnStreams(scenario, kSteps);
  for (std::uint64_t run = 0; run < (kSanitized ? 3 : 6); ++run) {
    const std::uint64_t which = testing::Seed() + 5 * run;
    SCOPED_TRACE(absl::StrCat("device ", which % 12));
    scenario.order = which;
    SetWorld(GetParam(), TightDevice(which));
    EXPECT_EQ(TrainOnStreams(scenario, kSteps), expected);
  }
}

// ---- A.8: hosts that wait, each at places of its own, for what peers have a part in.

// What a trainer does between two gradients. All of it is allowed, and much of it makes the host
// wait for the whole device.
void DoSomething(const Moment& moment, std::uint64_t what) {
  Device& device = moment.rank.device;
  ASSERT_EQ(cudaSetDevice(moment.rank.rank), cudaSuccess);
  void* memory = nullptr;
  switch (what % 8) {
    case 0:
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      break;
    case 1:
      EXPECT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
      EXPECT_EQ(cudaFree(memory), cudaSuccess);
      break;
    case 2:
      EXPECT_TRUE(moment.stream.Synchronize(absl::Seconds(120)).ok());
      break;
    case 3:
      moment.stream.Enqueue([] { return absl::OkStatus(); });
      break;
    case 4: {
      const auto buffer = device.Allocate(64);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      device.Clear(moment.stream, (*buffer)->data(), 64);
      EXPECT_TRUE(moment.stream.Synchronize(absl::Seconds(120)).ok());
      break;
    }
    case 5: {
      const auto buffer = device.Allocate(64);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      const auto graph = device.Record([&](Stream& stream) {
        device.Clear(stream, (*buffer)->data(), 64);
        return absl::OkStatus();
      });
      ASSERT_TRUE(graph.ok()) << graph.status();
      EXPECT_TRUE((*graph)->Enqueue(moment.stream).ok());
      EXPECT_TRUE(moment.stream.Synchronize(absl::Seconds(120)).ok());
      break;
    }
    default:
      break;
  }
}

TEST_P(ExecutorHazards, A8HostsWaitEachAtPlacesOfItsOwn) {
  for (const char* name : {"owner_sharded_2x2", "one_in_flight_2x2", "owned_2x2"}) {
    Scenario scenario = ScenarioOf(name);
    const WeightsByRank expected = TrainOnStreams(scenario, kSteps);
    for (std::uint64_t run = 0; run < 2; ++run) {
      const std::uint64_t seed = testing::Seed() + run;
      SCOPED_TRACE(absl::StrCat(name, ", run ", run));
      if (scenario.layout != Layout::kOwned) scenario.order = seed;
      std::vector<std::mt19937_64> random;
      for (std::uint64_t rank = 0; rank < kRanks; ++rank) random.emplace_back(seed * kRanks + rank);
      scenario.before_submit = [&](const Moment& moment) {
        DoSomething(moment, random[moment.rank.rank]());
        return true;
      };
      SetWorld(GetParam(), TightDevice(seed));
      EXPECT_EQ(TrainOnStreams(scenario, kSteps), expected);
      scenario.before_submit = nullptr;
      FakeWorld() = {};
    }
  }
}

// A.7, A.11: a communicator of the trainer's own, whose collectives go out from the thread that
// calls Weft, at the same place of every rank's step.
TEST_P(ExecutorHazards, A7ATrainersOwnCollectivesBesideWefts) {
  Scenario scenario = ScenarioOf("owner_replicated_2x2");
  const WeightsByRank expected = TrainOnStreams(scenario, kSteps);
  struct Own {
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<Buffer> sum;
  };
  std::array<Own, kRanks> owned;
  scenario.before_submit = [&](const Moment& moment) {
    Own& own = owned[moment.rank.rank];
    if (own.communicator == nullptr) {
      std::vector<int> ranks(kRanks);
      std::iota(ranks.begin(), ranks.end(), 0);
      own.communicator = *moment.rank.transport.CreateCommunicator("trainer", ranks);
      own.sum = *moment.rank.device.Allocate(64);
      moment.rank.device.Clear(moment.stream, own.sum->data(), 64);
    }
    const absl::Status issued =
        own.communicator->AllReduce(moment.stream, own.sum->data(), own.sum->data(), 16,
                                    DType::kF32, ReduceOp::kSum, {"", "trainer"});
    EXPECT_TRUE(issued.ok()) << issued;
    return true;
  };
  // Freed with Weft's own work under way.
  scenario.after_steps = [&](int rank) { owned[rank] = {}; };
  for (std::uint64_t run = 0; run < 3; ++run) {
    SetWorld(GetParam(), TightDevice(testing::Seed() + run));
    EXPECT_EQ(TrainOnStreams(scenario, kSteps), expected) << "run " << run;
  }
}

// ---- C, B.14: ends in the middle of a step.

// Of the clock below: long enough for what is well on a busy machine.
constexpr absl::Duration kDeadline = absl::Minutes(1);
// What hangs is to end at a deadline. Only what does not is the fakes' to find.
constexpr int kGraceMs = 90'000;

// Its time can be made to run faster, so that a deadline comes soon.
class HastyClock final : public Clock {
 public:
  Nanos Now() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return time_ + (Clock::Steady().Now() - since_) * rate_;
  }
  bool WaitUntil(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
                 Nanos deadline) override {
    const fakes::Blocked blocked;
    return Clock::Steady().WaitUntil(cv, lock, OnSteady(deadline));
  }
  // As many times as fast as real time.
  void Run(Nanos rate) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Nanos now = Clock::Steady().Now();
    time_ += (now - since_) * rate_;
    since_ = now;
    rate_ = rate;
  }

 private:
  Nanos OnSteady(Nanos deadline) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::max(since_ + (deadline - time_) / rate_, Clock::Steady().Now());
  }

  mutable std::mutex mutex_;
  Nanos since_ = Clock::Steady().Now();
  Nanos time_ = since_;
  Nanos rate_ = 1;
};
constexpr Nanos kHaste = 30;

void RunWithDeadline(const testing::WorldOptions& options,
                     const std::function<void(testing::Rank)>& body) {
  testing::WorldOptions own = options;
  own.deadline = kDeadline;
  testing::RunFakeWorld(own, body);
}

// A.2, A.6: the devices are as tight as is said. Told that NCCL orders launches where it does not,
// ranks that issue everything in one order hang all the same, until the deadline.
TEST_F(ExecutorHazardsOnce, WithoutAnOrderOfLaunchesTheSameRunsHang) {
  int hung = 0;
  for (std::uint64_t run = 0; run < 10 && hung == 0; ++run) {
    HastyClock clock;
    std::array<absl::Status, kRanks> errors;
    Scenario scenario = ScenarioOf("turns_2x2");
    scenario.order = testing::Seed() + run;
    scenario.before_submit = [&](const Moment& moment) {
      if (moment.step == 1) clock.Run(kHaste);
      return true;
    };
    scenario.on_error = [&](int rank, const absl::Status& error) {
      clock.Run(1);
      errors[rank].Update(error);
    };
    SetWorld(LaunchOrder::kImplicit, TightDevice(1));
    FakeWorld().clock = &clock;
    FakeWorld().fakes.implicit_launch_order = false;
    FakeWorld().fakes.grace_ms = kGraceMs;
    (void)TrainOnStreams(scenario, kSteps, RunWithDeadline);
    for (const absl::Status& error : errors) hung += absl::IsDeadlineExceeded(error);
  }
  EXPECT_GT(hung, 0);
}

using Place = std::pair<int, int>;  // step and matrix

// Where a run is when something happens.
Place PlaceOf(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return {static_cast<int>(random() % (kSteps - 1)), static_cast<int>(random() % kMatrices)};
}

// A run in which something happens to each of `ranks`, at a place of its own.
class FailingRun {
 public:
  FailingRun(LaunchOrder order, std::uint64_t seed, const std::vector<int>& ranks,
             std::function<bool(const Moment& moment)> happens)
      : scenario_(ScenarioOf(seed % 2 == 0 ? "turns_2x2" : "owner_sharded_2x2")) {
    std::map<int, Place> places;
    for (const int rank : ranks) places[rank] = PlaceOf(seed * kRanks + rank);
    scenario_.order = seed | 1;
    scenario_.options = [more = scenario_.options](RuntimeOptions& options) {
      if (more) more(options);
      options.deadline = kDeadline;
    };
    scenario_.before_submit = [this, places, happens](const Moment& moment) {
      const auto place = places.find(moment.rank.rank);
      if (place == places.end() || place->second != Place(moment.step, moment.matrix)) return true;
      happened_ = true;
      return happens(moment);
    };
    scenario_.on_error = [this](int failed, const absl::Status& error) {
      clock_.Run(1);
      errors_[failed].Update(error);
    };
    SetWorld(order, TightDevice(seed));
    FakeWorld().clock = &clock_;
    FakeWorld().fakes.grace_ms = kGraceMs;
  }

  // From now on, until the first error: what waits for a deadline has not long to wait.
  void Hasten() { clock_.Run(kHaste); }
  // The first error of each rank.
  const std::array<absl::Status, kRanks>& Run() {
    const Nanos begin = clock_.Now();
    (void)TrainOnStreams(scenario_, kSteps, RunWithDeadline);
    EXPECT_LT(absl::Nanoseconds(clock_.Now() - begin), 3 * kDeadline);
    EXPECT_TRUE(happened_);
    return errors_;
  }

 private:
  HastyClock clock_;
  Scenario scenario_;
  std::atomic<bool> happened_ = false;
  std::array<absl::Status, kRanks> errors_;
};

// One of a rank's communicators.
std::string CommunicatorOf(int rank, bool intra) {
  return intra ? absl::StrCat("weft intra ", rank / 2) : absl::StrCat("weft inter ", rank % 2);
}

// C.22, C.23, C.26: one communicator fails of itself, with collectives of the other under way. All
// of all ranks end, and no abort waits for a kernel.
TEST_P(ExecutorHazards, C22ACommunicatorFailsInTheMiddleOfAStep) {
  for (std::uint64_t run = 0; run < (kSanitized ? 2 : 6); ++run) {
    SCOPED_TRACE(run);
    const int rank = static_cast<int>((testing::Seed() + run) % kRanks);
    FailingRun failing(GetParam(), testing::Seed() + run, {rank}, [&](const Moment&) {
      fakes::FailCommunicator(rank, CommunicatorOf(rank, run % 2 == 0), 0, ncclRemoteError);
      return true;
    });
    for (const absl::Status& error : failing.Run()) {
      EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable) << error;
      EXPECT_THAT(std::string(error.message()), HasSubstr("remote process exited"));
    }
  }
}

// C.22: the collectives of one rank never start.
TEST_P(ExecutorHazards, C22APeerIsDeadInTheMiddleOfAStep) {
  const int rank = static_cast<int>(testing::Seed() % kRanks);
  FailingRun failing(GetParam(), testing::Seed(), {rank}, [&](const Moment&) {
    fakes::KillPeer(rank);
    failing.Hasten();
    return true;
  });
  for (const absl::Status& error : failing.Run()) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDeadlineExceeded) << error;
  }
}

// C.25: NCCL never says that it has put a kernel on its stream.
TEST_F(ExecutorHazardsOnce, C25ACallOfNcclDoesNotEnd) {
  const int rank = static_cast<int>(testing::Seed() % kRanks);
  FailingRun failing(kOrders[testing::Seed() / 2 % 2], testing::Seed(), {rank}, [&](const Moment&) {
    fakes::FailCommunicator(rank, CommunicatorOf(rank, true), 0, ncclInProgress);
    failing.Hasten();
    return true;
  });
  for (const absl::Status& error : failing.Run()) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDeadlineExceeded) << error;
  }
}

// C.24, C.27, C.29: a rank destroys its runtime and transport while collectives are under way, with
// graphs that have been launched. Its peers learn that it has left.
TEST_P(ExecutorHazards, C27ARankLeavesInTheMiddleOfAStep) {
  for (std::uint64_t run = 0; run < (kSanitized ? 2 : 4); ++run) {
    SCOPED_TRACE(run);
    const int rank = static_cast<int>((testing::Seed() + run) % kRanks);
    FailingRun failing(GetParam(), testing::Seed() + run, {rank},
                       [](const Moment&) { return false; });
    const auto& errors = failing.Run();
    for (int other = 0; other < kRanks; ++other) {
      if (other == rank) continue;
      // By where it left: in the middle of a step, or between two.
      EXPECT_THAT(
          std::string(errors[other].message()),
          AnyOf(AllOf(HasSubstr(absl::StrCat("rank ", rank)), HasSubstr("ended its runtime")),
                AllOf(HasSubstr(absl::StrCat("lost rank ", rank)), HasSubstr("left"))));
    }
  }
}

// C.29: everybody does, each at a place of its own.
TEST_P(ExecutorHazards, C29AllLeaveInTheMiddleOfAStep) {
  for (std::uint64_t run = 0; run < (kSanitized ? 2 : 4); ++run) {
    SCOPED_TRACE(run);
    FailingRun failing(GetParam(), testing::Seed() + run, {0, 1, 2, 3},
                       [](const Moment&) { return false; });
    (void)failing.Run();
  }
}

// B.14, C.28: a communicator that fails while it is made. The others, which work, end with it.
TEST_P(ExecutorHazards, C28ACommunicatorFailsInItsCreation) {
  for (const bool intra : {false, true}) {
    std::array<absl::Status, kRanks> errors;
    Scenario scenario = ScenarioOf("owner_sharded_2x2");
    scenario.on_error = [&](int rank, const absl::Status& error) { errors[rank].Update(error); };
    SetWorld(GetParam(), TightDevice(testing::Seed()));
    FakeWorld().fakes.grace_ms = kGraceMs;
    FakeWorld().prepare = [&] {
      fakes::FailCommunicator(2, CommunicatorOf(2, intra), 0, ncclSystemError);
    };
    (void)TrainOnStreams(scenario, 1, RunWithDeadline);
    for (const absl::Status& error : errors) EXPECT_FALSE(error.ok());
  }
}

}  // namespace
}  // namespace weft
