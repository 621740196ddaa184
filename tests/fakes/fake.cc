#include "tests/fakes/fake.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/environment.h"
#include "tests/fakes/capture.h"
#include "tests/fakes/world.h"

namespace weft::fakes {
namespace {

int HardwareQueues(const Options& options) {
  if (options.hardware_queues > 0) return options.hardware_queues;
  const auto set = base::EnvironmentVariable("CUDA_DEVICE_MAX_CONNECTIONS");
  return set.has_value() ? std::clamp(std::stoi(*set), 1, 32) : 8;
}

}  // namespace

const char* Name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kRace:
      return "race";
    case FaultKind::kUnwritten:
      return "unwritten";
    case FaultKind::kBounds:
      return "bounds";
    case FaultKind::kUseAfterFree:
      return "use after free";
    case FaultKind::kMismatch:
      return "mismatch";
    case FaultKind::kOrder:
      return "order";
    case FaultKind::kDeadlock:
      return "deadlock";
    case FaultKind::kLeak:
      return "leak";
    case FaultKind::kMisuse:
      return "misuse";
  }
  return "fault";
}

void Reset(const Options& options) {
  Thread& thread = Thread::Current();
  World& world = World::Get();
  std::vector<std::function<void()>> drops;
  {
    std::unique_lock lock(world.mutex);
    world.idle.wait(lock, [&] { return world.busy == 0; });
    world.DropPending(-1);
    world.options = options;
    world.random.seed(options.seed);
    world.execs.clear();
    world.graphs.clear();
    world.captures.clear();
    world.capture_count = 0;
    world.event_of.clear();
    world.events.clear();
    world.stream_of.clear();
    world.streams.clear();
    world.components = 0;
    world.memory.Clear();
    world.objects.clear();
    world.drops.clear();
    world.last = {-1, ""};
    world.communicator_failures.clear();
    world.faults.clear();
    world.fault_texts.clear();
    world.executed.clear();
    world.devices = std::vector<Device>(options.devices);
    for (Device& device : world.devices) device.queues.resize(HardwareQueues(options));
    world.broken = false;
    world.came = 0;
    world.lazy_loading =
        base::EnvironmentVariable("CUDA_MODULE_LOADING").value_or("LAZY") != "EAGER";
    world.now_ns = 0;
    thread.last_error = 0;
    thread.device = 0;
    drops = world.on_reset;
    world.Changed();
  }
  for (const auto& drop : drops) drop();
}

const Options& options() { return World::Get().options; }

std::vector<Fault> Faults() {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  return world.faults;
}

std::string FaultText() {
  std::ostringstream text;
  for (const Fault& fault : Faults()) text << Name(fault.kind) << ": " << fault.text << "\n";
  return text.str();
}

void CheckLeaks() {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  for (const Stream& stream : world.streams) {
    if (!stream.legacy && !stream.inner && !stream.destroyed) {
      world.Report(FaultKind::kLeak, stream.Label());
    }
  }
  std::size_t number = 0;
  for (const Event& event : world.events) {
    if (!event.destroyed) {
      world.Report(FaultKind::kLeak, "event " + std::to_string(number) + " of device " +
                                         std::to_string(event.device));
    }
    ++number;
  }
  for (const Allocation* allocation : world.memory.Living()) {
    world.Report(FaultKind::kLeak, allocation->Describe());
  }
  // By a number: an address would be another one in each run.
  number = 0;
  for (const auto& [object, what] : world.objects) {
    world.Report(FaultKind::kLeak, what + " (object " + std::to_string(number++) + ")");
  }
}

std::vector<std::string> Executed() {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  return world.executed;
}

int MostProcessorsHeld(int device) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  return world.devices.at(device).most_held;
}

void DropWaits(int device, std::string stream, std::function<bool(std::int64_t index)> drop) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.drops[{device, std::move(stream)}] = std::move(drop);
}

void RunLast(int device, std::string stream) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.last = {device, std::move(stream)};
}

std::vector<std::string> WaitsOn(int device, const std::string& stream) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  for (const Stream* found : world.devices.at(device).streams) {
    if (found->name == stream || found->number == stream) return found->waits;
  }
  return {};
}

std::vector<std::string> Streams(int device) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  std::vector<std::string> names;
  for (const Stream* stream : world.devices.at(device).streams) {
    if (!stream->inner) names.push_back(stream->name);
  }
  return names;
}

void FailAllocation(int device, std::int64_t n) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.devices.at(device).fail_allocation = n;
}

void FailDevice(int device, int cuda_error) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.devices.at(device).sticky = cuda_error;
  world.DropPending(device);
}

void FailCommunicator(int device, std::string communicator, std::int64_t n, int nccl_result) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.communicator_failures[{device, std::move(communicator)}] = {n, nccl_result};
}

void KillPeer(int device) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  world.devices.at(device).killed = true;
}

}  // namespace weft::fakes
