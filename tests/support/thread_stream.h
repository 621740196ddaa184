// A stream of host functions on one thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "weft/stream.h"

namespace weft::testing {

class ThreadStream final : public Stream {
 public:
  explicit ThreadStream(std::string name) : name_(std::move(name)), worker_([this] { Loop(); }) {}
  ~ThreadStream() override {
    {
      std::lock_guard<std::mutex> l(m_);
      stop_ = true;
    }
    cv_.notify_all();
    worker_.join();
  }
  std::string_view name() const override { return name_; }
  void Enqueue(Work work) override {
    Push([this, work = std::move(work)] {
      if (!status().ok()) return;
      absl::Status s = work();
      if (!s.ok()) Abort(s);
    });
  }
  void EnqueueAlways(std::function<void(const absl::Status&)> work) override {
    Push([this, work = std::move(work)] { work(status()); });
  }
  void Record(Event&) override {}
  void Wait(const Event&) override {}
  void RecordTime(Nanos*) override {}
  absl::Status Synchronize(absl::Duration) override {
    std::unique_lock<std::mutex> l(m_);
    const auto target = pushed_;
    cv_.wait(l, [&] { return done_ >= target; });
    return status_;
  }
  absl::Status status() const override {
    std::lock_guard<std::mutex> l(m_);
    return status_;
  }
  void Abort(absl::Status cause) override {
    std::lock_guard<std::mutex> l(m_);
    if (status_.ok()) status_ = cause;
  }

 private:
  void Push(std::function<void()> f) {
    {
      std::lock_guard<std::mutex> l(m_);
      q_.push_back(std::move(f));
      ++pushed_;
    }
    cv_.notify_all();
  }
  void Loop() {
    std::unique_lock<std::mutex> l(m_);
    for (;;) {
      cv_.wait(l, [&] { return stop_ || !q_.empty(); });
      if (q_.empty()) return;
      auto f = std::move(q_.front());
      q_.pop_front();
      l.unlock();
      f();
      f = nullptr;
      l.lock();
      ++done_;
      cv_.notify_all();
    }
  }
  const std::string name_;
  mutable std::mutex m_;
  std::condition_variable cv_;
  std::deque<std::function<void()>> q_;
  std::size_t pushed_ = 0, done_ = 0;
  bool stop_ = false;
  absl::Status status_;
  std::thread worker_;
};

}  // namespace weft::testing
