// A host device whose products last as long as on a given device: they are computed at once and
// then waited for, which needs no core. All work that is given a duration shares the device: one
// item at a time, first come first served.
#pragma once

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "weft/device.h"

namespace weft::bench {

class PacedDevice final : public Device {
 public:
  // Products run at `flops_per_second`, those with a symmetric result at half their FLOPs; 0:
  // infinitely fast.
  explicit PacedDevice(double flops_per_second)
      : inner_(*CreateHostDevice()), math_(*this), flops_per_second_(flops_per_second) {}

  // Holds the device for a time, in stream order.
  void Occupy(Stream& stream, double seconds) {
    if (seconds <= 0) return;
    stream.Enqueue([this, seconds] {
      std::unique_lock<std::mutex> lock(mutex_);
      const Nanos begin = std::max(clock().Now(), free_);
      const Nanos end = free_ = begin + static_cast<Nanos>(std::llround(1e9 * seconds));
      std::condition_variable never;
      while (clock().Now() < end) clock().WaitUntil(never, lock, end);
      return absl::OkStatus();
    });
  }

  std::string_view kind() const override { return inner_->kind(); }
  std::unique_ptr<Stream> CreateStream(std::string name, StreamPriority priority) override {
    return inner_->CreateStream(std::move(name), priority);
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
  class PacedMath final : public Math {
   public:
    explicit PacedMath(PacedDevice& device) : device_(device) {}

    absl::Status MatMul(Stream& stream, const Product& product) override {
      WEFT_RETURN_IF_ERROR(inner().MatMul(stream, product));
      if (device_.flops_per_second_ <= 0) return absl::OkStatus();
      const double flops = (product.symmetric ? 1.0 : 2.0) * static_cast<double>(product.d.batch) *
                           static_cast<double>(product.d.rows) *
                           static_cast<double>(product.d.cols) *
                           static_cast<double>(product.a.cols);
      device_.Occupy(stream, flops / device_.flops_per_second_);
      return absl::OkStatus();
    }
    absl::Status Prepare(const Product& product) override { return inner().Prepare(product); }
    absl::Status Normalize(Stream& stream, const Matrix& u, bool transpose, float floor,
                           bool clamp_to_floor, const Matrix& x) override {
      return inner().Normalize(stream, u, transpose, floor, clamp_to_floor, x);
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
  std::mutex mutex_;
  Nanos free_ = 0;  // when the device has served those who came
};

}  // namespace weft::bench
