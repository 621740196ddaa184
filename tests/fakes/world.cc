#include "tests/fakes/world.h"

#include <utility>

#include "tests/fakes/scheduler.h"

namespace weft::fakes {
namespace {

constexpr std::size_t kMostFaults = 200;

}  // namespace

World& World::Get() {
  static World* world = [] {
    auto* made = new World;  // The engine's thread uses it until the end of the process.
    made->devices.resize(made->options.devices);
    for (Device& device : made->devices) device.queues.resize(8);
    return made;
  }();
  return *world;
}

void World::Report(FaultKind kind, std::string text) {
  if (faults.size() >= kMostFaults) return;
  if (!fault_texts.insert(Name(kind) + (": " + text)).second) return;
  faults.push_back(Fault{kind, std::move(text)});
}

Memory::Report World::Reporter() {
  return [this](FaultKind kind, std::string text) { Report(kind, std::move(text)); };
}

int World::Sticky(int device) const {
  if (broken) return kLaunchTimeout;
  return device >= 0 && device < static_cast<int>(devices.size()) ? devices[device].sticky : 0;
}

Stream* World::NewStream(int device, unsigned flags, int priority, bool inner) {
  Device& owner = devices[device];
  Stream& made = streams.emplace_back();
  made.device = device;
  made.flags = flags;
  made.priority = priority;
  made.inner = inner;
  made.component = components++;
  made.queue = static_cast<int>(owner.streams.size() % owner.queues.size());
  made.number = inner ? "graph" : "stream " + std::to_string(owner.numbered++);
  made.name = made.number;
  owner.streams.push_back(&made);
  stream_of[&made] = &made;
  return &made;
}

// Its place among the hardware queues is its own: it moves no other stream.
Stream* World::Legacy(int device) {
  Device& owner = devices[device];
  if (owner.legacy == nullptr) {
    Stream& made = streams.emplace_back();
    made.device = device;
    made.legacy = true;
    made.component = components++;
    made.number = made.name = "default";
    stream_of[&made] = &made;
    owner.legacy = &made;
  }
  return owner.legacy;
}

Stream* World::FindStream(const void* handle, int device) {
  if (reinterpret_cast<std::uintptr_t>(handle) <= 2) return Legacy(device);
  const auto found = stream_of.find(handle);
  return found == stream_of.end() || found->second->destroyed ? nullptr : found->second;
}

void World::JoinHost(int device, const Clock& clock) {
  auto& host = devices[device].host;
  if (host->Includes(clock)) return;
  auto joined = std::make_shared<Clock>(*host);
  joined->Join(clock);
  host = std::move(joined);
}

std::shared_ptr<Node> World::MakeNode(Node::Kind kind, Stream* stream, Work work) {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->stream = stream;
  node->work = std::move(work);
  node->label =
      std::make_shared<const std::string>("'" + node->work.name + "' on " + stream->Label());
  return node;
}

void World::Enqueue(std::shared_ptr<Node> node) {
  Stream& stream = *node->stream;
  Device& device = devices[stream.device];
  node->host = device.host;
  node->unreachable = device.killed && node->work.meeting != nullptr;
  if (node->kind == Node::Kind::kWork) stream.last_label = node->label;
  node->mark->stream = &stream;
  node->mark->after = stream.last_label;
  stream.tail = node->mark;
  if (broken || device.sticky != 0) {
    node->dropped = true;
    return;
  }
  if (stream.legacy) {
    for (const Stream* other : device.streams) {
      if (other->blocking() && other->tail != nullptr) node->waits.push_back(other->tail);
    }
  } else if (stream.blocking() && device.legacy != nullptr && device.legacy->tail != nullptr) {
    node->waits.push_back(device.legacy->tail);
  }
  if (node->work.ordered_launch) device.launch_order.push_back(node.get());
  ++device.unfinished;
  device.queues[stream.queue].push_back(std::move(node));
  StartEngine();
  Changed();
}

std::shared_ptr<Mark> World::Record(Stream* stream) {
  auto node = MakeNode(Node::Kind::kRecord, stream, Work{"record", {}, {}, {}});
  Enqueue(node);
  return node->mark;
}

void World::Changed() {
  ++changes;
  for (Waiter* waiter : waiters) {
    if (waiter->ready) continue;
    if (Sticky(waiter->device) != 0) {
      waiter->ready = waiter->given_up = true;
    } else if ((*waiter->done)()) {
      waiter->ready = true;
    }
    if (waiter->ready) waiter->wake.notify_one();
  }
  engine_wake.notify_one();
}

bool World::Block(std::unique_lock<std::mutex>& lock, const std::string& why,
                  const std::function<bool()>& done) {
  Thread& thread = Thread::Current();
  if (Sticky(thread.device) != 0) return false;
  if (done()) return true;
  ++thread.times_blocked;
  StartEngine();
  Waiter waiter;
  waiter.why = why;
  waiter.done = &done;
  waiter.device = thread.device;
  waiters.push_back(&waiter);
  thread.waiter = &waiter;
  ++changes;
  engine_wake.notify_one();
  waiter.wake.wait(lock, [&] { return waiter.ready; });
  thread.waiter = nullptr;
  waiters.remove(&waiter);
  return !waiter.given_up;
}

void World::DropPending(int device) {
  // Also from the meetings, which would keep them; their peers wait from now on.
  const auto drop = [](Node& node) {
    node.dropped = true;
    if (node.work.meeting == nullptr) return;
    std::erase_if(node.work.meeting->started_,
                  [&](const std::shared_ptr<Node>& started) { return started.get() == &node; });
  };
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (device >= 0 && i != static_cast<std::size_t>(device)) continue;
    Device& dropped = devices[i];
    for (auto& queue : dropped.queues) {
      for (const auto& node : queue) drop(*node);
      queue.clear();
    }
    dropped.launch_order.clear();
    dropped.processors_held = 0;
    dropped.unfinished = 0;
  }
  for (Stream& stream : streams) {
    if ((device >= 0 && stream.device != device) || stream.running == nullptr) continue;
    const std::shared_ptr<Node> running = std::exchange(stream.running, nullptr);
    drop(*running);
  }
  Changed();
}

std::vector<const Node*> World::Pending() const {
  std::vector<const Node*> pending;
  for (const Stream& stream : streams) {
    if (stream.running != nullptr) pending.push_back(stream.running.get());
  }
  for (const Device& device : devices) {
    for (const auto& queue : device.queues) {
      for (const auto& node : queue) pending.push_back(node.get());
    }
  }
  return pending;
}

void World::StartEngine() {
  if (std::exchange(started_, true)) return;
  std::thread([this] { Scheduler(*this).Loop(); }).detach();
}

}  // namespace weft::fakes
