// The thread of a device that looks on: it completes what is to happen on the host once streams
// have come to a place.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/cuda/mark.h"
#include "device/cuda/stream_state.h"
#include "device/cuda/time_base.h"
#include "weft/clock.h"

namespace weft::device {

// Thread-safe. Sleeps while nothing is pending, otherwise asks the device at intervals. Per stream,
// completes in the order added; an aborted stream's callbacks run at once, and those that stand
// behind a time overtake it. Once the device has failed everything completes with its error.
// Destruction completes everything first.
class Watcher {
 public:
  using Callback = std::function<void(const absl::Status&)>;

  Watcher(std::shared_ptr<MarkPool> pool, Clock& clock);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // `callback` is given the stream's status at `position`; what it throws fails the stream there. A
  // null mark counts as reached.
  void AddCallback(std::shared_ptr<StreamState> stream, std::int64_t position,
                   std::shared_ptr<Mark> mark, Callback callback);
  // Writes when the (timed) mark was reached to `*time`.
  void AddTime(std::shared_ptr<StreamState> stream, std::int64_t position,
               std::shared_ptr<Mark> mark, Nanos* time);

  // Whether everything added for the stream up to `position` is complete.
  bool IsDone(const std::shared_ptr<StreamState>& stream, std::int64_t position) const;

 private:
  struct Item {
    std::int64_t position = 0;
    std::shared_ptr<Mark> mark;
    Callback callback;
    Nanos* time = nullptr;
    Nanos asked = 0;  // when the time was
  };
  struct Queue {
    std::list<Item> items;
    Nanos latest = 0;  // of the times written
  };
  using Queues = std::map<std::shared_ptr<StreamState>, Queue>;

  void Add(std::shared_ptr<StreamState> stream, Item item);
  void Run();
  // Completes what is ready; whether there was something. `lock` is given up meanwhile.
  bool CompleteReady(const std::shared_ptr<StreamState>& stream, Queue& queue,
                     std::unique_lock<std::mutex>& lock);
  void Complete(StreamState& stream, Item& item, const absl::StatusOr<bool>& reached, Queue& queue);

  const std::shared_ptr<MarkPool> pool_;
  Clock& clock_;
  TimeBase time_base_;  // the thread's own
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  Queues queues_;  // with items only
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace weft::device
