// Math on the CPU.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "device/host/matmul.h"
#include "weft/math.h"
#include "weft/stream.h"

namespace weft::device {

class HostMath final : public Math {
 public:
  explicit HostMath(const MatMulOptions& options) : products_(options) {}

  absl::Status MatMul(Stream& stream, const Product& product) override;
  absl::Status Prepare(const Product& product) override;
  absl::Status Prepare(Stream&) override { return absl::OkStatus(); }
  absl::Status Normalize(Stream& stream, const Matrix& u, bool transpose, float floor,
                         bool clamp_to_floor, const Matrix& x) override;
  absl::Status RowNorm(Stream& stream, const Matrix& x, bool columns, float eps, float gamma,
                       const Matrix& y) override;
  absl::Status ColumnSquares(Stream& stream, const Matrix& x, float unit, bool add,
                             float* squares) override;
  absl::Status DivideColumns(Stream& stream, const Matrix& x, const ColumnNorms& norms,
                             const Matrix& y) override;
  absl::Status Convert(Stream& stream, const Matrix& x, bool transpose, const Matrix& y) override;
  absl::Status ShiftDiagonal(Stream& stream, const Matrix& x, float shift,
                             const Matrix& y) override;
  absl::Status Norm(Stream& stream, std::int64_t count, const void* x, DType dtype, float scale,
                    float* norm) override;
  absl::Status Add(Stream& stream, std::int64_t count, const void* x, void* y,
                   DType dtype) override;
  absl::Status Momentum(Stream& stream, std::int64_t count, const void* gradient,
                        DType gradient_type, float gradient_scale, float mu, bool nesterov,
                        float* momentum, float* update, const StepControl* control) override;
  absl::Status Apply(Stream& stream, std::int64_t count, float decay, float step,
                     const float* direction, void* weight, DType weight_type,
                     const StepControl* control) override;
  absl::Status ApplyMatrix(Stream& stream, float decay, float step, const Matrix& direction,
                           const Matrix& weight, const StepControl* control) override;
  absl::Status AdamW(Stream& stream, const AdamWArguments& arguments) override;
  absl::Status Tally(Stream& stream, const VerdictArguments& arguments) override;
  absl::Status Decide(Stream& stream, const VerdictArguments& arguments) override;

 private:
  MatMulCache products_;
};

}  // namespace weft::device
