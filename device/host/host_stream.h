// A stream of the host device: a queue and the one worker thread that empties it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "device/host/host_event.h"
#include "weft/clock.h"
#include "weft/device.h"
#include "weft/stream.h"

namespace weft::device {

class HostStream final : public Stream {
 public:
  // `threads`: what an OpenMP region entered by an item may use.
  HostStream(std::string name, int threads, StreamPriority priority, Clock& clock);
  ~HostStream() override;

  std::string_view name() const override { return name_; }
  void Enqueue(Work work) override;
  void EnqueueAlways(std::function<void(const absl::Status&)> work) override;
  void Record(Event& event) override;
  void Wait(const Event& event) override;
  void RecordTime(Nanos* time) override;
  absl::Status Synchronize(absl::Duration timeout) override;
  absl::Status status() const override;
  void Abort(absl::Status cause) override;

 private:
  struct Always {
    std::function<void(const absl::Status&)> work;
  };
  struct Reach {
    std::shared_ptr<Point> point;
  };
  struct Await {
    std::shared_ptr<Point> point;
  };
  struct Time {
    Nanos* time;
  };
  using Item = std::variant<Work, Always, Reach, Await, Time>;

  void Push(Item item);
  void RunWorker(int threads, StreamPriority priority);
  void Run(Item& item);
  // Runs what the caller gave. An error that it returns fails the stream, and so does an exception,
  // which must not leave the worker: that would end the process.
  template <typename Call>
  void RunGuarded(Call call);
  void AwaitPoint(const std::shared_ptr<Point>& point);
  // The first failure wins; returns whether this was it.
  bool Fail(absl::Status cause);
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  const std::string name_;
  Clock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable work_arrived_;
  std::condition_variable progress_;
  std::deque<Item> queue_;
  std::int64_t pushed_ = 0;
  std::int64_t finished_ = 0;
  int synchronizing_ = 0;  // hosts blocked in Synchronize
  bool idle_ = false;      // the worker waits for work_arrived_
  bool closing_ = false;
  absl::Status status_;
  std::shared_ptr<Point> awaited_;  // what the worker is blocked on
  // Mirrors !status_.ok(), readable under a Point's mutex.
  std::atomic<bool> failed_{false};

  std::thread worker_;
};

}  // namespace weft::device
