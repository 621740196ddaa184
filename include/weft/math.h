// Products and the few element-wise kernels that update rules are written with. One implementation
// per device; update/ composes them and never looks inside.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "weft/dtype.h"
#include "weft/stream.h"

#pragma GCC visibility push(default)
namespace weft {

// A row-major matrix, or `batch` of them at a fixed distance, in device memory. Not owned.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;    // elements between rows, >= cols
  std::int64_t batch = 1;         // >= 1
  std::int64_t batch_stride = 0;  // elements between matrices; unused when batch == 1

  static Matrix Dense(void* data, DType dtype, std::int64_t rows, std::int64_t cols,
                      std::int64_t batch = 1) {
    return {data, dtype, rows, cols, cols, batch, rows * cols};
  }
};

// D = alpha * A * op(B) + beta * C, with op(B) = B^T when transpose_b. Shapes: A is m x k, op(B)
// k x n, C and D m x n, all with the same batch. Operands A, B, C, D share one dtype; products are
// accumulated, and the sum with beta * C is formed, in fp32 and rounded once. D overlaps none of
// A, B, C. C is read only when beta != 0, A and B only when alpha != 0; without terms (k == 0 or
// alpha == 0) D = beta * C.
struct Product {
  Matrix a;
  Matrix b;
  bool transpose_b = false;
  float alpha = 1;
  float beta = 0;
  Matrix c;
  Matrix d;
  // The caller states that alpha * A * op(B) + beta * C is symmetric (m == n). The device may then
  // compute one triangle and mirror it, at about half the work; D is exactly symmetric.
  bool symmetric = false;
};

// What the ranks have decided about a matrix's step. Device memory, written in the stream before
// what reads it.
struct StepControl {
  float skip = 0;             // not 0: nothing is written
  float gradient_factor = 1;  // clipping, and a loss scale undone
};

struct VerdictArguments;  // weft/verdict.h

// All calls enqueue on `stream` and return at once; pointers must stay valid until the stream has
// passed the item. Argument errors (shape, dtype) are returned at once and enqueue nothing.
// Empty matrices (rows, cols or count zero) are no-ops.
// Deterministic: equal arguments give equal bits on the same machine and thread count.
class Math {
 public:
  virtual ~Math() = default;

  virtual absl::Status MatMul(Stream& stream, const Product& product) = 0;

  // Makes the first call of a product of this form cheap later: selects and compiles its kernels
  // now, on the host. Data pointers are ignored.
  virtual absl::Status Prepare(const Product& product) = 0;

  // What products and norms on `stream` need besides their arguments (room to work in), now, so
  // that none of them waits for it. May block the host. ResourceExhausted when there is no memory.
  virtual absl::Status Prepare(Stream& stream) = 0;

  // X = U / ||U||_F per matrix of the batch, with op(U) = U^T when `transpose`. U is kF32; X has
  // either dtype, shape op(U). The norm neither overflows nor underflows. A norm below `floor`
  // (>= 0) gives X = 0; with `clamp_to_floor` it gives U / floor instead (torch.optim.Muon's eps).
  virtual absl::Status Normalize(Stream& stream, const Matrix& u, bool transpose, float floor,
                                 bool clamp_to_floor, const Matrix& x) = 0;

  // Y = gamma * X with each row, or with `columns` each column, divided by max(its norm, eps), per
  // matrix of the batch; a row of zeros gives zeros. Whose rows those of an update are is the
  // caller's to say, since a shard does not know: those of the orientation with rows <= cols, so
  // the columns of a tall matrix. Shapes equal, dtypes any; squares are summed in double and the
  // result is rounded once. Y may be X where the dtypes and strides are equal. eps >= 0, gamma
  // finite.
  virtual absl::Status RowNorm(Stream& stream, const Matrix& x, bool columns, float eps,
                               float gamma, const Matrix& y) = 0;

  // The two halves of RowNorm() of columns whose rows lie in several places, with `squares` added
  // up in between; X and Y fp32, one matrix each, of one shape; `squares` has X.cols numbers:
  //   squares[j] = (add ? squares[j] : 0) + sum over rows of (x[i][j] / unit)^2;
  //   y[i][j] = gamma * x[i][j] / max(unit * sqrt(squares[j]), eps), a column of zeros gives zeros.
  // Formed in double and rounded once. `unit`, a positive number, keeps squares inside fp32's
  // range. Without rows squares are zeros, or stay as they are. Y may be X.
  virtual absl::Status ColumnSquares(Stream& stream, const Matrix& x, float unit, bool add,
                                     float* squares) = 0;
  struct ColumnNorms {
    const float* squares = nullptr;
    float unit = 1;
    float eps = 0;
    float gamma = 1;
  };
  virtual absl::Status DivideColumns(Stream& stream, const Matrix& x, const ColumnNorms& norms,
                                     const Matrix& y) = 0;

  // Y = op(X), converting the dtype. Shapes: Y has the shape of op(X).
  virtual absl::Status Convert(Stream& stream, const Matrix& x, bool transpose,
                               const Matrix& y) = 0;

  // Y = X + shift * I per matrix of the batch; square, of one dtype, formed in fp32 and rounded
  // once. X and Y do not overlap.
  virtual absl::Status ShiftDiagonal(Stream& stream, const Matrix& x, float shift,
                                     const Matrix& y) = 0;

  // *norm = scale * ||X||_2 of `count` elements; *norm is device memory. Squares are summed in
  // double: it is finite exactly when every element is and the norm fits fp32. 0 for no elements.
  virtual absl::Status Norm(Stream& stream, std::int64_t count, const void* x, DType dtype,
                            float scale, float* norm) = 0;

  // Y = X + Y, formed in fp32 and rounded once; both of `dtype`, without overlap.
  virtual absl::Status Add(Stream& stream, std::int64_t count, const void* x, void* y,
                           DType dtype) = 0;

  // The kernels below change state or weights as `control` (null: all defaults) says at the time
  // the item runs. G stands for control->gradient_factor * gradient.

  // M <- mu * M + (1 - mu) * s * G;  U <- nesterov ? mu * M + (1 - mu) * s * G : M.
  // `count` elements; G has dtype `gradient_type`, M and U are fp32; s = gradient_scale.
  // U may not overlap M or G.
  virtual absl::Status Momentum(Stream& stream, std::int64_t count, const void* gradient,
                                DType gradient_type, float gradient_scale, float mu, bool nesterov,
                                float* momentum, float* update, const StepControl* control) = 0;

  // W <- W * (1 - decay) - step * D. W has dtype `weight_type` and is rounded once; D is fp32.
  virtual absl::Status Apply(Stream& stream, std::int64_t count, float decay, float step,
                             const float* direction, void* weight, DType weight_type,
                             const StepControl* control) = 0;
  // The same bits for the elements of matrices of one shape: D fp32, W of any dtype, without
  // overlap.
  virtual absl::Status ApplyMatrix(Stream& stream, float decay, float step, const Matrix& direction,
                                   const Matrix& weight, const StepControl* control) = 0;

  // torch.optim.AdamW's step, decoupled decay: with g = s * G and t = *applied_steps + 1,
  //   W <- W * (1 - lr * wd);  m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2;
  //   W <- W - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).
  //   *applied_steps <- t (device memory).
  // m and v are fp32.
  struct AdamWArguments {
    std::int64_t count = 0;
    const void* gradient = nullptr;
    DType gradient_type = DType::kF32;
    float gradient_scale = 1;
    float* m = nullptr;
    float* v = nullptr;
    void* weight = nullptr;
    DType weight_type = DType::kF32;
    double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    std::int64_t* applied_steps = nullptr;
    const StepControl* control = nullptr;
  };
  virtual absl::Status AdamW(Stream& stream, const AdamWArguments& arguments) = 0;

  // What this rank has found in its gradients, into `arguments.values`: where a norm is not finite,
  // kVerdictNonFinite of its matrix; and the root of the sum of the others' squares in the tail.
  virtual absl::Status Tally(Stream& stream, const VerdictArguments& arguments) = 0;
  // From the reduced values to `arguments.controls` (device/verdict_rules.h).
  virtual absl::Status Decide(Stream& stream, const VerdictArguments& arguments) = 0;
};

}  // namespace weft
#pragma GCC visibility pop
