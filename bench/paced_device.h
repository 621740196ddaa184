// A host device whose products last as long as on a given device: they are computed, and the rest
// of their time is waited for, which needs no core. All work that is given a duration shares the
// device: that of the streams of highest priority goes first, in equal parts; or all in equal
// parts, as on a device that knows no priorities.
#pragma once

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "tests/support/forwarding.h"
#include "weft/clock.h"
#include "weft/device.h"

namespace weft::bench {

// A base, so that it is there before what forwards to it.
struct HostDeviceOwner {
  const std::unique_ptr<Device> host = *CreateHostDevice();
};

class PacedDevice final : private HostDeviceOwner, public testing::ForwardingDevice {
 public:
  // Products run at `flops_per_second`, those with a symmetric result at half their FLOPs; 0:
  // infinitely fast.
  PacedDevice(double flops_per_second, bool priorities)
      : ForwardingDevice(*host),
        math_(*this),
        flops_per_second_(flops_per_second),
        priorities_(priorities) {}

  // Holds the device for a time, in stream order.
  void Occupy(Stream& stream, double seconds) {
    if (seconds > 0) Finish(stream, Begin(stream, seconds));
  }

  std::unique_ptr<Stream> CreateStream(std::string name, StreamPriority priority) override {
    std::unique_ptr<Stream> stream = inner_.CreateStream(std::move(name), priority);
    const std::lock_guard<std::mutex> lock(mutex_);
    priority_of_[stream.get()] = priority;
    return stream;
  }
  Math& math() override { return math_; }

 private:
  struct Job {
    double left;  // nanoseconds if it had the device alone
    StreamPriority priority;
  };

  std::shared_ptr<Job> Begin(Stream& stream, double seconds) {
    auto job = std::make_shared<Job>(Job{1e9 * seconds, StreamPriority::kNormal});
    if (priorities_) {
      const std::lock_guard<std::mutex> lock(mutex_);
      job->priority = priority_of_.at(&stream);
    }
    stream.Enqueue([this, job] {
      const std::lock_guard<std::mutex> lock(mutex_);
      Settle();
      jobs_.push_back(job);
      changed_.notify_all();
      return absl::OkStatus();
    });
    return job;
  }
  void Finish(Stream& stream, std::shared_ptr<Job> job) {
    stream.Enqueue([this, job = std::move(job)] {
      std::unique_lock<std::mutex> lock(mutex_);
      for (Settle(); job->left > 0; Settle()) {
        clock().WaitUntil(changed_, lock, settled_ + static_cast<Nanos>(std::ceil(NextEnd())));
      }
      return absl::OkStatus();
    });
  }

  std::vector<std::shared_ptr<Job>> Served() const {
    std::vector<std::shared_ptr<Job>> first;
    for (const auto& job : jobs_) {
      if (!first.empty() && job->priority < first[0]->priority) continue;
      if (!first.empty() && job->priority > first[0]->priority) first.clear();
      first.push_back(job);
    }
    return first;
  }
  // How long until one of the served jobs ends, if none comes.
  double NextEnd() const {
    const auto served = Served();
    double least = served[0]->left;
    for (const auto& job : served) least = std::min(least, job->left);
    return least * static_cast<double>(served.size());
  }
  // Deals out the time that has passed.
  void Settle() {
    const Nanos now = clock().Now();
    auto passed = static_cast<double>(now - settled_);
    settled_ = now;
    while (!jobs_.empty() && passed > 0) {
      const double part = std::min(passed, NextEnd());
      const auto served = Served();
      for (const auto& job : served) {
        job->left -= part / static_cast<double>(served.size());
        if (job->left < 0.5) job->left = 0;
      }
      passed -= part;
      std::erase_if(jobs_, [](const auto& job) { return job->left == 0; });
    }
  }

  class PacedMath final : public testing::ForwardingMath {
   public:
    explicit PacedMath(PacedDevice& device)
        : ForwardingMath(device.inner_.math()), device_(device) {}

    absl::Status MatMul(Stream& stream, const Product& product) override {
      if (device_.flops_per_second_ <= 0) return inner_.MatMul(stream, product);
      const double flops = (product.symmetric ? 1.0 : 2.0) * static_cast<double>(product.d.batch) *
                           static_cast<double>(product.d.rows) *
                           static_cast<double>(product.d.cols) *
                           static_cast<double>(product.a.cols);
      auto job = device_.Begin(stream, flops / device_.flops_per_second_);
      WEFT_RETURN_IF_ERROR(inner_.MatMul(stream, product));
      device_.Finish(stream, std::move(job));
      return absl::OkStatus();
    }

   private:
    PacedDevice& device_;
  };

  PacedMath math_;
  const double flops_per_second_;
  const bool priorities_;
  std::map<const Stream*, StreamPriority> priority_of_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Job>> jobs_;  // under way, in order of arrival
  Nanos settled_ = 0;                       // until when time has been dealt out
};

}  // namespace weft::bench
