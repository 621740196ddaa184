// A device and a math that pass every call on, for tests and benchmarks that change a few of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "weft/device.h"
#include "weft/verdict.h"

namespace weft::testing {

class ForwardingMath : public Math {
 public:
  explicit ForwardingMath(Math& inner) : inner_(inner) {}

  absl::Status MatMul(Stream& stream, const Product& product) override {
    return inner_.MatMul(stream, product);
  }
  absl::Status Prepare(const Product& product) override { return inner_.Prepare(product); }
  absl::Status Prepare(Stream& stream) override { return inner_.Prepare(stream); }
  absl::Status Normalize(Stream& stream, const Matrix& u, bool transpose, float floor,
                         bool clamp_to_floor, const Matrix& x) override {
    return inner_.Normalize(stream, u, transpose, floor, clamp_to_floor, x);
  }
  absl::Status RowNorm(Stream& stream, const Matrix& x, bool columns, float eps, float gamma,
                       const Matrix& y) override {
    return inner_.RowNorm(stream, x, columns, eps, gamma, y);
  }
  absl::Status ColumnSquares(Stream& stream, const Matrix& x, float unit, bool add,
                             float* squares) override {
    return inner_.ColumnSquares(stream, x, unit, add, squares);
  }
  absl::Status DivideColumns(Stream& stream, const Matrix& x, const ColumnNorms& norms,
                             const Matrix& y) override {
    return inner_.DivideColumns(stream, x, norms, y);
  }
  absl::Status Convert(Stream& stream, const Matrix& x, bool transpose, const Matrix& y) override {
    return inner_.Convert(stream, x, transpose, y);
  }
  absl::Status ShiftDiagonal(Stream& stream, const Matrix& x, float shift,
                             const Matrix& y) override {
    return inner_.ShiftDiagonal(stream, x, shift, y);
  }
  absl::Status Norm(Stream& stream, std::int64_t count, const void* x, DType dtype, float scale,
                    float* norm) override {
    return inner_.Norm(stream, count, x, dtype, scale, norm);
  }
  absl::Status Add(Stream& stream, std::int64_t count, const void* x, void* y,
                   DType dtype) override {
    return inner_.Add(stream, count, x, y, dtype);
  }
  absl::Status Momentum(Stream& stream, std::int64_t count, const void* gradient,
                        DType gradient_type, float gradient_scale, float mu, bool nesterov,
                        float* momentum, float* update, const StepControl* control) override {
    return inner_.Momentum(stream, count, gradient, gradient_type, gradient_scale, mu, nesterov,
                           momentum, update, control);
  }
  absl::Status Apply(Stream& stream, std::int64_t count, float decay, float step,
                     const float* direction, void* weight, DType weight_type,
                     const StepControl* control) override {
    return inner_.Apply(stream, count, decay, step, direction, weight, weight_type, control);
  }
  absl::Status ApplyMatrix(Stream& stream, float decay, float step, const Matrix& direction,
                           const Matrix& weight, const StepControl* control) override {
    return inner_.ApplyMatrix(stream, decay, step, direction, weight, control);
  }
  absl::Status AdamW(Stream& stream, const AdamWArguments& arguments) override {
    return inner_.AdamW(stream, arguments);
  }
  absl::Status Tally(Stream& stream, const VerdictArguments& arguments) override {
    return inner_.Tally(stream, arguments);
  }
  absl::Status Decide(Stream& stream, const VerdictArguments& arguments) override {
    return inner_.Decide(stream, arguments);
  }

 protected:
  Math& inner_;
};

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& inner) : inner_(inner) {}

  std::string_view kind() const override { return inner_.kind(); }
  DeviceIdentity identity() const override { return inner_.identity(); }
  std::unique_ptr<Stream> CreateStream(std::string name, StreamPriority priority) override {
    return inner_.CreateStream(std::move(name), priority);
  }
  std::unique_ptr<Event> CreateEvent() override { return inner_.CreateEvent(); }
  absl::StatusOr<std::unique_ptr<Stream>> AdoptStream(void* native, std::string name) override {
    return inner_.AdoptStream(native, std::move(name));
  }
  absl::StatusOr<std::unique_ptr<Event>> AdoptEvent(void* native) override {
    return inner_.AdoptEvent(native);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(std::size_t bytes) override {
    return inner_.Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateHost(std::size_t bytes) override {
    return inner_.AllocateHost(bytes);
  }
  void Copy(Stream& stream, void* to, const void* from, std::size_t bytes) override {
    inner_.Copy(stream, to, from, bytes);
  }
  absl::Status CopyNow(void* to, const void* from, std::size_t bytes) override {
    return inner_.CopyNow(to, from, bytes);
  }
  void Clear(Stream& stream, void* to, std::size_t bytes) override {
    inner_.Clear(stream, to, bytes);
  }
  absl::StatusOr<std::unique_ptr<Replay>> Record(
      std::function<absl::Status(Stream&)> work) override {
    return inner_.Record(std::move(work));
  }
  Math& math() override { return inner_.math(); }
  Clock& clock() override { return inner_.clock(); }
  int hardware_queues() const override { return inner_.hardware_queues(); }

 protected:
  Device& inner_;
};

}  // namespace weft::testing
