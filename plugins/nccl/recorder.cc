#include "plugins/nccl/recorder.h"

#include <algorithm>
#include <utility>

#include "plugins/nccl/context.h"
#include "plugins/nccl/process.h"
#include "plugins/nccl/profile_json.h"

namespace weft::nccl_plugin {
namespace {

bool SameJob(const Job& a, const Job& b) {
  return a.known && b.known && a.step == b.step && a.op == b.op;
}

bool IsApi(Kind kind) { return kind == Kind::kGroupApi || kind == Kind::kCallApi; }

}  // namespace

Recorder::Recorder(CommunicatorName name, std::size_t capacity, bool kernels, Logger log)
    : log_(log),
      capacity_(capacity),
      kernels_(kernels),
      flushed_(weft_nccl_profile_flushes()),
      file_(std::move(name)) {
  events_.reserve(capacity_);
  free_.reserve(capacity_);
}

Event* Recorder::Find(EventId id) {
  if (id.index == 0 || id.index > events_.size()) return nullptr;
  Event& event = events_[id.index - 1];
  return event.used && event.use == id.use ? &event : nullptr;
}

EventId Recorder::Start(const Event& event, EventId parent_id, bool bad_parent, const Job* job,
                        std::int32_t rank) {
  const std::int64_t now = NowNs();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (rank >= 0) world_rank_ = rank;
  Event* const parent = Find(parent_id);
  if (bad_parent || (parent_id.index != 0 && parent == nullptr)) ++counters_.stale;

  std::uint32_t index = 0;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (events_.size() < capacity_) {
    events_.emplace_back();  // within what was reserved: `parent` stays where it is
    index = static_cast<std::uint32_t>(events_.size());
  } else {
    Drop(parent, event.kind);
    return {};
  }
  Event& slot = events_[index - 1];
  const std::uint32_t use = slot.use + 1;
  slot = event;
  slot.used = true;
  slot.use = use & 0xfffffu;  // as many bits as a handle has
  slot.begin_ns = slot.end_ns = now;
  if (job != nullptr) slot.job = *job;
  if (parent != nullptr) {
    slot.parent = parent_id;
    if (job == nullptr) slot.job = parent->job;
    slot.replay = parent->children;
    Adopt(*parent, slot);
    BecomePending(parent_id);
  }
  ++counters_.events;
  if (!slot.job.known && (slot.kind == Kind::kCallApi || slot.kind == Kind::kTask)) {
    ++counters_.unattributed;
  }
  return {index, slot.use};
}

// What waits for its children must not wait for one that is not recorded.
void Recorder::Drop(Event* parent, Kind kind) {
  ++counters_.dropped;
  if (parent == nullptr || kind == Kind::kKernelLaunch) return;
  ++parent->children;
  if (kind == Kind::kKernel) ++parent->kernels_lost;
  if (parent->kind == Kind::kGroupApi) parent->job.known = false;
}

// A group has the job of its calls when they all have one.
void Recorder::Adopt(Event& parent, const Event& child) {
  if (child.kind == Kind::kKernelLaunch) return;
  ++parent.children;
  if (parent.kind != Kind::kGroupApi) return;
  if (parent.children == 1) {
    parent.job = child.job;
  } else if (!SameJob(parent.job, child.job)) {
    parent.job.known = false;
  }
}

// One more thing below `id` is not over. If that was over itself, its own parent must hear of it
// too: a task may start long after its call has returned, and kernels after the task was enqueued.
void Recorder::BecomePending(EventId id) {
  for (Event* event = Find(id); event != nullptr; event = Find(event->parent)) {
    const bool was_pending = Pending(*event);
    ++event->pending_children;
    if (was_pending) return;
  }
}

void Recorder::BecomeDone(const Event& done) {
  std::int64_t end = done.end_ns;
  for (Event* event = Find(done.parent); event != nullptr; event = Find(event->parent)) {
    event->end_ns = end = std::max(event->end_ns, end);
    if (--event->pending_children > 0 || !event->stopped) return;
  }
}

void Recorder::Stop(EventId id) {
  const std::int64_t now = NowNs();
  const std::lock_guard<std::mutex> lock(mutex_);
  Event* const event = Find(id);
  if (event == nullptr) {
    ++counters_.stale;
  } else if (event->stopped) {
    ++counters_.repeated;
  } else {
    event->stopped = true;
    event->stop_ns = now;
    event->end_ns = std::max(event->end_ns, now);
    if (event->kind == Kind::kKernel) {
      Event* const task = Find(event->parent);
      if (task != nullptr) ++task->kernels_stopped;
    }
    if (event->pending_children == 0) BecomeDone(*event);
  }
}

void Recorder::Mark(EventId id, std::uint64_t gpu_ns) {
  const std::int64_t now = NowNs();
  const std::lock_guard<std::mutex> lock(mutex_);
  Event* const event = Find(id);
  if (event == nullptr) {
    ++counters_.stale;
    return;
  }
  event->mark_ns = now;
  event->gpu_end_ns = gpu_ns;
}

void Recorder::CountForeign() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counters_.foreign;
}

// Whether nothing more can be said of the event. A call is over when its task came and went, since
// that may come late; a task when its kernels did, which may come later still. What was captured
// never is: NCCL names it as parent at every replay, until the communicator ends. One rank's calls
// have no tasks.
bool Recorder::Complete(const Event& event) const {
  if (Pending(event)) return false;
  if (IsApi(event.kind)) {
    return !event.captured && (event.children > 0 || file_.name().ranks == 1);
  }
  return event.kind != Kind::kTask || !kernels_ ||
         event.kernels_stopped + event.kernels_lost >= std::max<int>(event.channels, 1);
}

std::vector<Event> Recorder::TakeComplete() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Event> taken;
  for (std::uint32_t i = 0; i < events_.size(); ++i) {
    Event& event = events_[i];
    if (!event.used || !Complete(event)) continue;
    taken.push_back(event);
    event.used = false;
    free_.push_back(i + 1);
  }
  return taken;
}

void Recorder::FlushIfAsked(std::uint64_t asked) {
  std::uint64_t seen = flushed_.load(std::memory_order_relaxed);
  if (seen == asked || !flushed_.compare_exchange_strong(seen, asked)) return;
  const std::lock_guard<std::mutex> lock(file_mutex_);
  const std::vector<Event> taken = TakeComplete();
  Counters counters;
  {
    const std::lock_guard<std::mutex> events_lock(mutex_);
    file_.set_rank(world_rank_);
    counters = counters_;
  }
  file_.Write(EventsJson(file_.name(), taken), CountersJson(file_.name(), counters), log_);
}

void Recorder::Finish() {
  const std::lock_guard<std::mutex> lock(file_mutex_);
  const std::lock_guard<std::mutex> events_lock(mutex_);
  file_.set_rank(world_rank_);
  std::vector<Event> left;
  for (const Event& event : events_) {
    if (!event.used) continue;
    left.push_back(event);
    if (Pending(event)) ++counters_.unfinished;
  }
  events_.clear();
  file_.Write(EventsJson(file_.name(), left), CountersJson(file_.name(), counters_), log_);
}

}  // namespace weft::nccl_plugin
