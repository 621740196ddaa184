#include "device/cuda/watcher.h"

#include <algorithm>
#include <utility>

#include "base/annotate.h"
#include "device/cuda/guards.h"
#include "device/cuda/mark_pool.h"
#include "device/cuda/poll.h"

namespace weft::device {

Watcher::Watcher(std::shared_ptr<MarkPool> pool, Clock& clock)
    : pool_(std::move(pool)), clock_(clock), time_base_(pool_, clock), thread_([this] { Run(); }) {}

Watcher::~Watcher() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

void Watcher::AddCallback(std::shared_ptr<StreamState> stream, std::int64_t position,
                          std::shared_ptr<Mark> mark, Callback callback) {
  Add(std::move(stream),
      {.position = position, .mark = std::move(mark), .callback = std::move(callback)});
}

void Watcher::AddTime(std::shared_ptr<StreamState> stream, std::int64_t position,
                      std::shared_ptr<Mark> mark, Nanos* time) {
  Add(std::move(stream),
      {.position = position, .mark = std::move(mark), .time = time, .asked = clock_.Now()});
}

void Watcher::Add(std::shared_ptr<StreamState> stream, Item item) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queues_[std::move(stream)].items.push_back(std::move(item));
  }
  arrived_.notify_one();
}

bool Watcher::IsDone(const std::shared_ptr<StreamState>& stream, std::int64_t position) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = queues_.find(stream);
  return found == queues_.end() ||
         std::all_of(found->second.items.begin(), found->second.items.end(),
                     [&](const Item& item) { return item.position > position; });
}

void Watcher::Run() {
  base::NameThread("weft watcher");
  const OnDevice on_device(pool_->ordinal());
  const BesideCaptures beside_captures;

  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (queues_.empty()) {
      if (closing_) return;
      arrived_.wait(lock);
      continue;
    }
    bool progress = false;
    // Others only add: an iterator stays good while the lock is given up.
    for (auto it = queues_.begin(); it != queues_.end();) {
      progress |= CompleteReady(it->first, it->second, lock);
      it = it->second.items.empty() ? queues_.erase(it) : std::next(it);
    }
    if (!progress) (void)clock_.WaitUntil(arrived_, lock, clock_.Now() + kPollInterval);
  }
}

bool Watcher::CompleteReady(const std::shared_ptr<StreamState>& stream, Queue& queue,
                            std::unique_lock<std::mutex>& lock) {
  bool progress = false;
  for (auto item = queue.items.begin(); item != queue.items.end();) {
    const bool overtakes = item != queue.items.begin();
    if (overtakes && (item->callback == nullptr || !stream->aborted())) {
      if (!stream->aborted()) return progress;
      ++item;
      continue;
    }
    lock.unlock();
    const absl::StatusOr<bool> reached = item->mark == nullptr ? true : item->mark->Reached();
    const bool ready =
        !reached.ok() || *reached || (item->callback != nullptr && stream->aborted());
    if (ready) Complete(*stream, *item, reached, queue);
    lock.lock();
    if (ready) {
      item = queue.items.erase(item);
      progress = true;
    } else {
      ++item;
    }
  }
  return progress;
}

void Watcher::Complete(StreamState& stream, Item& item, const absl::StatusOr<bool>& reached,
                       Queue& queue) {
  if (!reached.ok()) stream.Fail(reached.status(), 0);
  if (item.time != nullptr) {
    const Nanos measured = reached.ok() ? time_base_.TimeOf(*item.mark) : clock_.Now();
    // Where the device's clock is not quite the host's, cause must not come behind effect.
    const Nanos earliest = std::max(queue.latest, item.asked);
    queue.latest = std::clamp(measured, earliest, std::max(clock_.Now(), earliest));
    *item.time = queue.latest;
  } else {
    const absl::Status status =
        reached.ok() && *reached ? stream.StatusAt(item.position) : stream.status();
    absl::Status thrown = stream.Guarded([&] {
      item.callback(status);
      return absl::OkStatus();
    });
    if (!thrown.ok()) stream.Fail(std::move(thrown), item.position);
  }
  // What the item owned is gone before anyone can see it finished.
  item.callback = nullptr;
  item.mark = nullptr;
}

}  // namespace weft::device
