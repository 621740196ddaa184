// When nothing can run and somebody waits: who waits for what, and the end of it.
#include <algorithm>
#include <sstream>

#include "tests/fakes/scheduler.h"

namespace weft::fakes {

Scheduler::Hang Scheduler::Hanging() const {
  if (world_.broken) return Hang::kNo;
  bool pending = false;
  for (const Device& device : world_.devices) {
    pending |= device.unfinished > 0;
    for (const auto& queue : device.queues) {
      if (!queue.empty() && Startable(*queue.front())) return Hang::kNo;
    }
  }
  bool waits = false, registered = false, all_wait = true, all_blocked = true;
  for (const Thread* thread : world_.threads) {
    waits |= thread->Waits();
    if (thread->registered == 0) continue;
    registered = true;
    all_wait &= thread->Waits();
    all_blocked &= thread->IsBlocked();
  }
  if (registered) {
    if (!all_blocked || !(pending || waits)) return Hang::kNo;
    return all_wait && !world_.Awaits() && world_.busy == 0 ? Hang::kNow : Hang::kAfterGrace;
  }
  if (!waits) return Hang::kNo;
  // A thread that is elsewhere may still bring what the others wait for.
  const bool alone = std::all_of(world_.threads.begin(), world_.threads.end(),
                                 [](Thread* thread) { return thread->engine || thread->Waits(); });
  return alone && world_.busy == 0 ? Hang::kNow : Hang::kAfterGrace;
}

std::string Scheduler::Describe(const Mark& mark) const {
  std::string text = "the event recorded on " + mark.stream->Label();
  return mark.after == nullptr ? text + " before any work" : text + " after " + *mark.after;
}

std::string Scheduler::Peers(const Node& node) const {
  const Meeting& meeting = *node.work.meeting;
  std::ostringstream text;
  text << meeting.started_.size() << " of " << meeting.members_ << " have started";
  std::size_t known = meeting.started_.size();
  for (const Node* other : world_.Pending()) {
    if (other->started || other->work.meeting.get() != &meeting) continue;
    ++known;
    text << ", that of " << other->stream->Label() << " is enqueued";
  }
  if (known < static_cast<std::size_t>(meeting.members_)) {
    text << ", " << meeting.members_ - known << " not even enqueued";
  }
  return text.str();
}

std::string Scheduler::Obstacle(const Node& node) const {
  const Device& device = world_.devices[node.stream->device];
  if (node.stream->running != nullptr) {
    return "waits for " + *node.stream->running->label + ", before it in its stream";
  }
  for (const auto& mark : node.waits) {
    if (!mark->done) return "waits for " + Describe(*mark);
  }
  if (node.host_function && device.in_host_function) {
    return "waits for the host function that runs";
  }
  const auto& queue = device.queues[node.stream->queue];
  if (!queue.empty() && queue.front().get() != &node) {
    return "waits for hardware queue " + std::to_string(node.stream->queue) + " behind " +
           *queue.front()->label;
  }
  if (node.unreachable) return "never starts: its process was killed";
  if (node.work.ordered_launch && device.launch_order.front() != &node) {
    return "waits for its turn in the launch order behind " + *device.launch_order.front()->label;
  }
  if (node.work.processors > 0) {
    std::ostringstream text;
    text << "waits for " << node.work.processors << " of " << world_.options.processors
         << " processors";
    for (const Node* other : world_.Pending()) {
      if (other->held > 0 && other->stream->device == node.stream->device) {
        text << ", " << other->held << " held by " << *other->label;
      }
    }
    return text.str();
  }
  return "can start";
}

std::string Scheduler::WaitGraph() const {
  std::ostringstream text;
  text << "nothing can run";
  for (const Waiter* waiter : world_.waiters) {
    text << "\n  a host thread of device " << waiter->device << " waits in " << waiter->why;
  }
  for (const Thread* thread : world_.threads) {
    if (thread->scopes > 0 && !thread->Waits()) {
      text << "\n  a host thread of device " << thread->device << " waits outside of the fakes";
    }
  }
  std::set<const Stream*> seen;
  for (const Node* node : world_.Pending()) {
    if (node->started && node->work.meeting != nullptr) {
      text << "\n  " << *node->label << " waits for its peers: " << Peers(*node);
    }
    // The head of each stream: what is behind it waits for it.
    if (node->started || !seen.insert(node->stream).second) continue;
    text << "\n  " << *node->label << " " << Obstacle(*node);
  }
  return text.str();
}

void Scheduler::Break() {
  world_.Report(FaultKind::kDeadlock, WaitGraph());
  world_.broken = true;
  world_.DropPending(-1);
}

}  // namespace weft::fakes
