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
#include "weft/clock.h"
#include "weft/device.h"

namespace weft::bench {

class PacedDevice final : public Device {
 public:
  // Products run at `flops_per_second`, those with a symmetric result at half their FLOPs; 0:
  // infinitely fast.
  PacedDevice(double flops_per_second, bool priorities)
      : inner_(*CreateHostDevice()),
        math_(*this),
        flops_per_second_(flops_per_second),
        priorities_(priorities) {}

  // Holds the device for a time, in stream order.
  void Occupy(Stream& stream, double seconds) {
    if (seconds > 0) Finish(stream, Begin(stream, seconds));
  }

  std::string_view kind() const override { return inner_->kind(); }
  DeviceIdentity identity() const override { return inner_->identity(); }
  std::unique_ptr<Stream> CreateStream(std::string name, StreamPriority priority) override {
    std::unique_ptr<Stream> stream = inner_->CreateStream(std::move(name), priority);
    const std::lock_guard<std::mutex> lock(mutex_);
    priority_of_[stream.get()] = priority;
    return stream;
  }
  std::unique_ptr<Event> CreateEvent() override { return inner_->CreateEvent(); }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  void Copy(Stream& stream, void* to, const void* from, std::size_t bytes) override {
    inner_->Copy(stream, to, from, bytes);
  }
  absl::Status CopyNow(void* to, const void* from, std::size_t bytes) override {
    return inner_->CopyNow(to, from, bytes);
  }
  void Clear(Stream& stream, void* to, std::size_t bytes) override {
    inner_->Clear(stream, to, bytes);
  }
  Math& math() override { return math_; }
  Clock& clock() override { return inner_->clock(); }

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

  class PacedMath final : public Math {
   public:
    explicit PacedMath(PacedDevice& device) : device_(device) {}

    absl::Status MatMul(Stream& stream, const Product& product) override {
      if (device_.flops_per_second_ <= 0) return inner().MatMul(stream, product);
      const double flops = (product.symmetric ? 1.0 : 2.0) * static_cast<double>(product.d.batch) *
                           static_cast<double>(product.d.rows) *
                           static_cast<double>(product.d.cols) *
                           static_cast<double>(product.a.cols);
      auto job = device_.Begin(stream, flops / device_.flops_per_second_);
      WEFT_RETURN_IF_ERROR(inner().MatMul(stream, product));
      device_.Finish(stream, std::move(job));
      return absl::OkStatus();
    }
    absl::Status Prepare(const Product& product) override { return inner().Prepare(product); }
    absl::Status Normalize(Stream& stream, const Matrix& u, bool transpose, float floor,
                           bool clamp_to_floor, const Matrix& x) override {
      return inner().Normalize(stream, u, transpose, floor, clamp_to_floor, x);
    }
    absl::Status RowNorm(Stream& stream, const Matrix& x, bool columns, float eps, float gamma,
                         const Matrix& y) override {
      return inner().RowNorm(stream, x, columns, eps, gamma, y);
    }
    absl::Status Convert(Stream& stream, const Matrix& x, bool transpose,
                         const Matrix& y) override {
      return inner().Convert(stream, x, transpose, y);
    }
    absl::Status ShiftDiagonal(Stream& stream, const Matrix& x, float shift,
                               const Matrix& y) override {
      return inner().ShiftDiagonal(stream, x, shift, y);
    }
    absl::Status Norm(Stream& stream, std::int64_t count, const void* x, DType dtype, float scale,
                      float* norm) override {
      return inner().Norm(stream, count, x, dtype, scale, norm);
    }
    absl::Status Add(Stream& stream, std::int64_t count, const void* x, void* y,
                     DType dtype) override {
      return inner().Add(stream, count, x, y, dtype);
    }
    absl::Status Momentum(Stream& stream, std::int64_t count, const void* gradient,
                          DType gradient_type, float gradient_scale, float mu, bool nesterov,
                          float* momentum, float* update, const StepControl* control) override {
      return inner().Momentum(stream, count, gradient, gradient_type, gradient_scale, mu, nesterov,
                              momentum, update, control);
    }
    absl::Status Apply(Stream& stream, std::int64_t count, float decay, float step,
                       const float* direction, void* weight, DType weight_type,
                       const StepControl* control) override {
      return inner().Apply(stream, count, decay, step, direction, weight, weight_type, control);
    }
    absl::Status AdamW(Stream& stream, const AdamWArguments& arguments) override {
      return inner().AdamW(stream, arguments);
    }

   private:
    Math& inner() { return device_.inner_->math(); }
    PacedDevice& device_;
  };

  const std::unique_ptr<Device> inner_;
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
