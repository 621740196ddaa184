// Math on a GPU: products through cuBLASLt, the rest by kernels of Weft's own.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/products.h"
#include "weft/math.h"
#include "weft/stream.h"

namespace weft::device {

class CudaMath final : public Math {
 public:
  // For the device `ordinal` alone.
  static absl::StatusOr<std::unique_ptr<CudaMath>> Create(int ordinal,
                                                          const ProductOptions& options);
  ~CudaMath() override;
  CudaMath(const CudaMath&) = delete;
  CudaMath& operator=(const CudaMath&) = delete;

  absl::Status MatMul(Stream& stream, const Product& product) override;
  absl::Status Prepare(const Product& product) override;
  absl::Status Prepare(Stream& stream) override;
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
  CudaMath(int ordinal, cublasLtHandle_t handle, const ProductOptions& options)
      : ordinal_(ordinal), handle_(handle), products_(handle, options) {}

  const int ordinal_;
  const cublasLtHandle_t handle_;
  Products products_;
};

}  // namespace weft::device
