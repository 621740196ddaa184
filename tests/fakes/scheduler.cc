#include "tests/fakes/scheduler.h"

#include <chrono>
#include <utility>

namespace weft::fakes {
namespace {

constexpr std::chrono::milliseconds kSoon{20};

}  // namespace

Meeting::Meeting(std::string name, int members, std::function<void()> run)
    : name_(std::move(name)), members_(members), run_(std::move(run)) {}

void Meeting::Abort() { AbortOn(-1); }

void Meeting::AbortOn(int device) {
  World& world = World::Get();
  const std::lock_guard lock(world.mutex);
  Scheduler(world).Abort(*this, device);
}

void Scheduler::Abort(Meeting& meeting, int device) {
  if (device < 0) {
    meeting.aborted_ = true;
  } else {
    meeting.aborted_on_.insert(device);
  }
  if (!meeting.running_) EndAborted(meeting);
  world_.Changed();
}

void Scheduler::EndAborted(Meeting& meeting) {
  std::vector<std::shared_ptr<Node>> ended;
  std::erase_if(meeting.started_, [&](const std::shared_ptr<Node>& node) {
    if (!meeting.AbortedOn(node->stream->device)) return false;
    ended.push_back(node);
    return true;
  });
  for (const std::shared_ptr<Node>& node : ended) {
    node->host_function = true;
    Finish(node);
  }
}

void Scheduler::Loop() {
  Thread::Current().engine = true;
  std::unique_lock lock(world_.mutex);
  while (true) {
    if (MayRun() && Step(lock)) continue;
    const Hang hang = Hanging();
    if (hang == Hang::kNow) {
      Break();
    } else if (hang == Hang::kAfterGrace) {
      const std::uint64_t before = world_.changes;
      const bool changed =
          world_.engine_wake.wait_for(lock, std::chrono::milliseconds(world_.options.grace_ms),
                                      [&] { return world_.changes != before; });
      if (!changed && Hanging() != Hang::kNo) Break();
    } else {
      world_.engine_wake.wait(lock);
    }
  }
}

bool Scheduler::MayRun() const {
  if (world_.options.pace == Pace::kEager) return true;
  if (world_.Awaits()) return false;
  for (const Thread* thread : world_.threads) {
    if (thread->registered > 0 && !thread->IsBlocked()) return false;
  }
  return true;
}

bool Scheduler::Startable(const Node& node) const {
  if (node.stream->running != nullptr) return false;
  for (const auto& mark : node.waits) {
    if (!mark->done) return false;
  }
  const Device& device = world_.devices[node.stream->device];
  if (node.host_function && device.in_host_function) return false;
  const Meeting* meeting = node.work.meeting.get();
  if (meeting != nullptr && meeting->AbortedOn(node.stream->device)) return true;
  if (node.unreachable) return false;
  if (node.work.ordered_launch && device.launch_order.front() != &node) return false;
  return node.work.processors == 0 ||
         device.processors_held + node.work.processors <= world_.options.processors;
}

// Only the fronts of the hardware queues: what entered a queue earlier has to have started.
bool Scheduler::Step(std::unique_lock<std::mutex>& lock) {
  std::vector<std::deque<std::shared_ptr<Node>>*> queues;
  for (Device& device : world_.devices) {
    for (auto& queue : device.queues) {
      if (!queue.empty() && Startable(*queue.front())) queues.push_back(&queue);
    }
  }
  const auto is_last = [&](const auto* queue) {
    const Stream& stream = *queue->front()->stream;
    return stream.device == world_.last.first && stream.name == world_.last.second;
  };
  const auto calls_back = [](const Device& device) { return device.in_host_function; };
  const bool others = !std::all_of(queues.begin(), queues.end(), is_last) ||
                      std::any_of(world_.devices.begin(), world_.devices.end(), calls_back);
  if (others) std::erase_if(queues, is_last);
  if (queues.empty()) return false;
  auto& queue = *queues[world_.random() % queues.size()];
  const std::shared_ptr<Node> node = queue.front();
  queue.pop_front();
  Start(lock, node);
  return true;
}

void Scheduler::Start(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Node>& node) {
  Stream& stream = *node->stream;
  Device& device = world_.devices[stream.device];
  if (node->work.ordered_launch) {
    std::erase(device.launch_order, node.get());
  }
  node->started = true;
  stream.running = node;
  stream.clock.Join(*node->host);
  for (const auto& mark : node->waits) stream.clock.Join(mark->clock);
  stream.clock.Tick(stream.component);
  const Site site{stream.component, stream.clock.At(stream.component), node->label};
  if (node->effect) node->effect(site, stream.clock);
  if (node->work.meeting != nullptr && node->work.meeting->AbortedOn(stream.device)) {
    Finish(node);
    return;
  }
  const bool sound = Check(*node, site);
  node->held = node->work.processors;
  device.processors_held += node->held;
  device.most_held = std::max(device.most_held, device.processors_held);
  if (node->work.meeting != nullptr) {
    Meet(lock, node, sound);
    return;
  }
  if (node->work.run && sound) {
    if (node->host_function) {
      RunHostFunction(lock, node);
      return;
    }
    ++world_.busy;
    lock.unlock();
    node->work.run();
    lock.lock();
    --world_.busy;
    world_.idle.notify_all();
  }
  Finish(node);
}

// On a thread of its own, as on the driver's: it may wait for what comes later. One that ends soon
// is awaited, so that a seed stands for one order.
void Scheduler::RunHostFunction(std::unique_lock<std::mutex>& lock,
                                const std::shared_ptr<Node>& node) {
  ++world_.busy;
  world_.devices[node->stream->device].in_host_function = true;
  std::thread([&world = world_, running = node]() mutable {
    Thread::Current().engine = true;
    running->work.run();
    const std::lock_guard ended(world.mutex);
    --world.busy;
    world.devices[running->stream->device].in_host_function = false;
    Scheduler(world).Finish(running);
    running.reset();
    world.idle.notify_all();
  }).detach();
  world_.idle.wait_for(lock, kSoon, [&] { return node->mark->done || node->dropped; });
}

void Scheduler::Meet(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Node>& node,
                     bool sound) {
  const std::shared_ptr<Meeting> meeting = node->work.meeting;
  meeting->started_.push_back(node);
  meeting->sound_ &= sound;
  if (static_cast<int>(meeting->started_.size()) < meeting->members_) {
    world_.Changed();
    return;
  }
  if (meeting->run_ && meeting->sound_) {
    meeting->running_ = true;
    ++world_.busy;
    lock.unlock();
    meeting->run_();
    lock.lock();
    --world_.busy;
    meeting->running_ = false;
    world_.idle.notify_all();
  }
  EndAborted(*meeting);
  const std::vector<std::shared_ptr<Node>> members = std::move(meeting->started_);
  meeting->started_.clear();
  for (const std::shared_ptr<Node>& member : members) Finish(member);
}

// Reads first: a work that updates its memory reads what was there before. Of accesses that cannot
// be the first is reported; the others are remembered all the same, so that one fault stays one.
bool Scheduler::Check(const Node& node, const Site& site) {
  bool sound = true;
  const Memory::Report all = world_.Reporter();
  const Memory::Report report = [&](FaultKind kind, std::string text) {
    const bool impossible = kind == FaultKind::kBounds || kind == FaultKind::kUseAfterFree;
    if (sound || !impossible) all(kind, std::move(text));
  };
  for (const bool write : {false, true}) {
    for (const Access& access : node.work.accesses) {
      if (access.write != write) continue;
      sound &= world_.memory.Note(access, site, node.stream->clock, node.stream->device,
                                  node.work.copy, world_.options.pageable_access, report);
    }
  }
  return sound;
}

void Scheduler::Finish(const std::shared_ptr<Node>& node) {
  if (node->dropped) return;
  Stream& stream = *node->stream;
  Device& device = world_.devices[stream.device];
  stream.running.reset();
  --device.unfinished;
  const bool aborted =
      node->work.meeting != nullptr && node->work.meeting->AbortedOn(stream.device);
  device.processors_held -= std::exchange(node->held, 0);
  world_.now_ns += 1000;
  node->mark->done = true;
  node->mark->clock = stream.clock;
  node->mark->time_ns = world_.now_ns;
  if (node->kind == Node::Kind::kWork && !aborted) {
    world_.executed.push_back(stream.Label() + ": " + node->work.name);
  }
  if (node->host_function) world_.JoinHost(stream.device, stream.clock);
  // Whatever the work holds goes with it, not with the last who looks at its mark.
  node->effect = nullptr;
  world_.Changed();
}

}  // namespace weft::fakes
