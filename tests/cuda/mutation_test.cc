// Each wait for an event that the executor enqueues is needed: without it the fakes find a fault.
//
// Two steps run with nothing that lets the host see the device, so that the second step's waits
// stand for those of every later one. A mutant leaves one of them out, on one rank. A wait of
// Weft's own streams may be needed by one trainer and implied by what another does, so each mutant
// meets several: one that reads weights in its forward pass, each layer on a stream of its own; one
// whose gradients do not come after those reads; where a use is left open, one that did not begin
// it; one whose owners read their weights outside of uses, or else those that write gradients where
// those of the step before were, as soon as these are reduced or delivered; one that is told how a
// step came out that fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tests/cuda/stream_trainer.h"
#include "tests/fakes/engine.h"
#include "tests/fakes/fake.h"
#include "tests/support/fake_world.h"
#include "tests/support/seed.h"

namespace weft {
namespace {

using testing::LastUse;
using testing::Scenario;
using testing::WeightsByRank;

// On a busy machine a host may see what the device has done, and wait without an event; or what
// looks on from the host comes too late to see what was too early.
constexpr int kTries = 8;

struct Place {
  int device;
  std::string stream;
  friend auto operator<=>(const Place&, const Place&) = default;
};

// Waits that were enqueued on a device's streams so far: the streams waited for.
using Waits = std::map<Place, std::vector<std::string>>;
Waits WaitsOf(int device) {
  Waits waits;
  for (const std::string& stream : fakes::Streams(device)) {
    waits[{device, stream}] = fakes::WaitsOn(device, stream);
  }
  return waits;
}

bool IsReader(const std::string& stream) { return stream.rfind("layer ", 0) == 0; }
bool EndsUses(const std::string& stream) {
  return IsReader(stream) || stream == "weft ends of uses";
}

class Mutants : public ::testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    testing::FakeWorld() = {};
    // Else the transport waits between collectives as well, which is not what is tested here.
    testing::FakeWorld().fakes.implicit_launch_order = true;
    testing::FakeWorld().launch_order = LaunchOrder::kImplicit;
  }
  void TearDown() override { testing::FakeWorld() = {}; }
};

// One trainer, and the waits of the second step: from `first` to `end`.
struct Program {
  Scenario scenario;
  WeightsByRank expected;
  Waits first, end;

  explicit Program(Scenario which) : scenario(std::move(which)) {
    // Else a rank may have gone through its steps while another, still waiting to begin them,
    // counts as blocked, and the device runs meanwhile.
    const auto committed = std::make_shared<std::barrier<>>(scenario.grid.size());
    const auto awake = std::make_shared<std::barrier<>>(scenario.grid.size());
    scenario.before_steps = [committed, awake] {
      {
        const fakes::Blocked blocked;
        committed->arrive_and_wait();
      }
      awake->arrive_and_wait();
    };
    scenario.on_stream = [](const std::string& name, Stream& stream) {
      fakes::SetStreamName(stream.native(), name);
    };
    // As of the last step's end: behind it, weights are used once more.
    Waits waits;
    std::mutex mutex;
    scenario.after_steps = [&](int rank) {
      const std::lock_guard<std::mutex> lock(mutex);
      waits.merge(WaitsOf(rank));
    };
    (void)TrainOnStreams(scenario, 1);
    first = std::exchange(waits, {});
    (void)TrainOnStreams(scenario, 2);
    end = std::move(waits);
    scenario.after_steps = nullptr;
    expected = TrainOnStreams(scenario, Steps());
  }

  // What ends with a step, or with a stage of its jobs, may be waited for in the next one alone.
  // One more for each of a cycle: an op has no work in some of its steps.
  int Steps() const {
    const bool released = scenario.last_use == LastUse::kReleased && !scenario.reuses_gradients;
    return (released ? 1 : 2) + scenario.period;
  }

  PlanLimits Limits() const {
    RuntimeOptions options;
    if (scenario.options) scenario.options(options);
    return options.limits;
  }

  std::int64_t CountOf(const Place& place) const {
    const auto found = end.find(place);
    if (found == end.end()) return 0;
    return static_cast<std::int64_t>(found->second.size() - first.at(place).size());
  }

  // The stream that wait `index` of the second step there is for.
  const std::string& Awaited(const Place& place, std::int64_t index) const {
    return end.at(place)[first.at(place).size() + static_cast<std::size_t>(index)];
  }

  // To a plan uses end one after another, whatever streams the trainer has, and with the step:
  // one's end waits for that of the one before, or for the trainer. A rank may not need each of
  // them.
  bool JoinsUses(const Place& place, std::int64_t index) const {
    const std::string& other = Awaited(place, index);
    return EndsUses(place.stream) && (EndsUses(other) || other == "main");
  }

  bool InLimits(int device) const {
    const int most = Limits().collectives_in_flight * fakes::options().channels;
    return fakes::MostProcessorsHeld(device) <= most;
  }

  // What makes a mutant show does no harm where nothing is left out.
  void ExpectSoundWhateverIsLast() const {
    std::set<Place> awaited;
    for (const auto& [place, waits] : end) {
      for (const std::string& stream : waits) awaited.insert({place.device, stream});
    }
    for (const Place& place : awaited) {
      testing::FakeWorld().prepare = [&] { fakes::RunLast(place.device, place.stream); };
      EXPECT_TRUE(TrainOnStreams(scenario, Steps()) == expected && InLimits(place.device))
          << "with '" << place.stream << "' of device " << place.device << " last";
    }
    testing::FakeWorld().prepare = nullptr;
  }

  // Whether it is seen that wait `index` of the second step is missing there.
  bool Catches(const Place& place, std::int64_t index) const {
    if (index >= CountOf(place)) return false;
    int runs = 0;
    testing::FakeWorld().prepare = [&] {
      // What is not waited for comes as late as it can.
      if (++runs % 3 != 0) fakes::RunLast(place.device, Awaited(place, index));
      // And that of the cycle's other steps.
      const std::int64_t count = CountOf(place);
      fakes::DropWaits(place.device, place.stream,
                       [=, left_out = static_cast<std::int64_t>(first.at(place).size()) + index,
                        end_of_cycle = count * scenario.period](std::int64_t wait) {
                         return wait >= left_out && wait < left_out + end_of_cycle &&
                                (wait - left_out) % count == 0;
                       });
    };
    Scenario mutant = scenario;
    mutant.on_error = [](int, const absl::Status&) {};  // it shows in the weights
    for (int attempt = 0; attempt < kTries; ++attempt) {
      if (TrainOnStreams(mutant, Steps()) != expected || !fakes::Faults().empty()) return true;
      if (!InLimits(place.device)) return true;
    }
    return false;
  }
};

bool IsTrainers(const Place& place) { return place.stream == "main" || IsReader(place.stream); }

TEST_P(Mutants, AreAllCaught) {
  std::vector<Program> programs;
  programs.emplace_back(GetParam());
  Scenario apart = GetParam();
  apart.reads_apart = true;
  apart.reuses_gradients = false;
  programs.emplace_back(apart);
  if (apart.last_use == LastUse::kHeld) {
    apart.last_use = LastUse::kNotBegun;
    programs.emplace_back(apart);
  }
  const std::size_t readers = programs.size();
  if (GetParam().layout == Layout::kOwned) {
    Scenario owner = GetParam();
    owner.reads_as_owner = owner.reads_apart = true;
    owner.last_use = LastUse::kReleased;
    programs.emplace_back(owner);
  } else if (programs[0].Limits().passes == 1) {
    Scenario reuses = GetParam();
    reuses.reuses_gradients = reuses.reads_apart = true;
    // Else the third step waits for the first, and the host sees what the second has done.
    reuses.waits_once = true;
    for (const Stage stage : {Stage::kReduced, Stage::kDelivered}) {
      reuses.reused_after = stage;
      programs.emplace_back(reuses);
    }
  }
  Scenario judged = GetParam();
  judged.judged = true;
  programs.emplace_back(judged);
  for (const Program& program : programs) program.ExpectSoundWhateverIsLast();
  testing::FakeWorld().faults_expected = true;
  int mutants = 0, joins = 0, joins_caught = 0;
  const auto expect = [&](bool caught, const Program& program, const Place& place,
                          std::int64_t index) {
    ++mutants;
    if (program.JoinsUses(place, index)) {
      ++joins;
      joins_caught += caught ? 1 : 0;
      return;
    }
    EXPECT_TRUE(caught) << "device " << place.device << ", " << place.stream
                        << ": nothing needs wait " << index << " of the second step's "
                        << program.CountOf(place) << ", for " << program.Awaited(place, index);
  };
  for (const auto& [place, unused] : programs[0].end) {
    if (IsTrainers(place)) continue;
    for (const Program& program : programs) {
      if (program.scenario.last_use != programs[0].scenario.last_use && EndsUses(place.stream))
        continue;
      ASSERT_EQ(program.CountOf(place), programs[0].CountOf(place));
    }
    for (std::int64_t index = 0; index < programs[0].CountOf(place); ++index) {
      const bool caught =
          std::any_of(programs.begin(), programs.end(),
                      [&](const Program& program) { return program.Catches(place, index); });
      expect(caught, programs[0], place, index);
    }
  }
  // What Weft makes the trainer's streams wait for. Its main one has waits of its own alone.
  for (const Program& program : absl::MakeConstSpan(programs).first(readers)) {
    for (const auto& [place, unused] : program.end) {
      if (!IsReader(place.stream)) continue;
      for (std::int64_t index = 0; index < program.CountOf(place); ++index) {
        expect(program.Catches(place, index), program, place, index);
      }
    }
  }
  std::printf("%s: %d mutants, %d of %d that join uses caught\n", GetParam().name.c_str(), mutants,
              joins_caught, joins);
  EXPECT_GT(mutants, joins);
  EXPECT_EQ(joins > 0, joins_caught > 0);
}

// But for the one whose host waits, after which everything is ordered, and the one whose main
// stream has to wait for all uses, since what is not fetched may change with the step.
std::vector<Scenario> Unwaiting() {
  std::vector<Scenario> all = testing::Scenarios();
  std::erase_if(all, [](const Scenario& each) {
    // One of shards with an owner has waits that hold refreshes of following steps apart, which one
    // matrix never has.
    const bool apart =
        each.period > 1 && each.layout == Layout::kSharded && each.strategy == Strategy::kOwner;
    return each.gradient_now || each.mixed || apart;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, Mutants, ::testing::ValuesIn(Unwaiting()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace weft
