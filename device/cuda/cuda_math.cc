#include "device/cuda/cuda_math.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/cuda/guards.h"
#include "device/cuda/launch.h"
#include "device/math_check.h"
#include "device/product_check.h"

namespace weft::device {
namespace {

// Elements that one block sums: enough for a block's tree of sums to cost little.
constexpr std::int64_t kSumPart = std::int64_t{16} * kBlockThreads;
// A block adds up as many parts at once.
constexpr std::int64_t kMostParts = kBlockThreads;

template <typename F>
void Enqueue(CudaStream& stream, const F& kernel) {
  stream.Issue("cudaLaunchKernel", [&](cudaStream_t handle) { return Launch(kernel, handle); });
}

// Y = factor * op(X), where the types of both are known at run time only.
void EnqueueMap(CudaStream& stream, const Matrix& x, const Matrix& y, bool transpose,
                const MapFactor& factor) {
  WithElement(x.dtype, [&]<typename From>(From*) {
    WithElement(y.dtype, [&]<typename To>(To*) {
      Enqueue(stream, MapMatrix<From, To>{TypedMatrix<const From>(x), TypedMatrix<To>(y), transpose,
                                          factor});
    });
  });
}

std::int64_t PartsOfSum(std::int64_t count) {
  return std::min(kMostParts, PartsOf(count, kSumPart));
}

// The sums of the squares of each matrix of X, `parts` of them, at the beginning of the stream's
// workspace. `batch` matrices' have room there.
struct Sums {
  double* data = nullptr;
  std::int64_t parts = 0;
  std::int64_t batch = 0;
};
absl::StatusOr<Sums> PlaceOfSums(CudaStream& stream, std::int64_t count, std::int64_t batch) {
  WEFT_ASSIGN_OR_RETURN(void* workspace, stream.Workspace());
  Sums sums;
  sums.data = static_cast<double*>(workspace);
  sums.parts = PartsOfSum(count);
  const auto room = static_cast<std::int64_t>(CudaStream::kSmallestWorkspace / sizeof(double));
  sums.batch = std::min(batch, room / std::max<std::int64_t>(sums.parts, 1));
  return sums;
}

void EnqueueSums(CudaStream& stream, const Matrix& x, const Sums& sums) {
  WithElement(x.dtype, [&]<typename T>(T*) {
    Enqueue(stream, SquareSums<T>{TypedMatrix<const T>(x), sums.parts, sums.data});
  });
}

// Matrices [first, first + count) of the batch.
Matrix Slice(Matrix matrix, std::int64_t first, std::int64_t count) {
  matrix.data = static_cast<std::byte*>(matrix.data) +
                first * matrix.batch_stride * static_cast<std::int64_t>(SizeOf(matrix.dtype));
  matrix.batch = count;
  return matrix;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaMath>> CudaMath::Create(int ordinal,
                                                           const ProductOptions& options) {
  const OnDevice on_device(ordinal);
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = cublasLtCreate(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError(absl::StrCat("cublasLtCreate on CUDA device ", ordinal,
                                            " failed: ", cublasLtGetStatusString(status)));
  }
  return std::unique_ptr<CudaMath>(new CudaMath(ordinal, handle, options));
}

CudaMath::~CudaMath() {
  const OnDevice on_device(ordinal_);
  (void)cublasLtDestroy(handle_);
}

absl::Status CudaMath::MatMul(Stream& stream, const Product& product) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckProduct(product, /*with_data=*/true));
  if (IsEmpty(product.d)) return absl::OkStatus();
  if (HasNoTerms(product)) {
    const bool with_c = product.beta != 0;
    EnqueueMap(
        cuda_stream, with_c ? product.c : product.d, product.d, /*transpose=*/false,
        {.kind = with_c ? MapFactor::kConstant : MapFactor::kZero, .constant = product.beta});
    return absl::OkStatus();
  }
  const OnDevice on_device(ordinal_);
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const ProductPlan> plan, products_.Get(product));
  WEFT_ASSIGN_OR_RETURN(void* workspace, cuda_stream.Workspace());
  cuda_stream.IssueChecked(
      [&](cudaStream_t handle) { return plan->Run(handle_, product, workspace, handle); });
  if (!product.symmetric) return absl::OkStatus();
  WithElement(product.d.dtype, [&]<typename T>(T*) {
    Enqueue(cuda_stream, MirrorMatrix<T>{TypedMatrix<T>(product.d)});
  });
  return absl::OkStatus();
}

absl::Status CudaMath::Prepare(Stream& stream) {
  return CudaStream::Of(stream).Workspace().status();
}

absl::Status CudaMath::Prepare(const Product& product) {
  WEFT_RETURN_IF_ERROR(CheckProduct(product, /*with_data=*/false));
  if (IsEmpty(product.d) || HasNoTerms(product)) return absl::OkStatus();
  const OnDevice on_device(ordinal_);
  Product form = product;
  for (Matrix* matrix : {&form.a, &form.b, &form.c, &form.d}) matrix->data = nullptr;
  return products_.Get(form).status();
}

absl::Status CudaMath::Normalize(Stream& stream, const Matrix& u, bool transpose, float floor,
                                 bool clamp_to_floor, const Matrix& x) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckNormalize(u, transpose, floor, x));
  if (IsEmpty(u)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Sums sums, PlaceOfSums(cuda_stream, u.rows * u.cols, u.batch));
  for (std::int64_t first = 0; first < u.batch; first += sums.batch) {
    const std::int64_t count = std::min(sums.batch, u.batch - first);
    const Matrix from = Slice(u, first, count);
    EnqueueSums(cuda_stream, from, sums);
    EnqueueMap(cuda_stream, from, Slice(x, first, count), transpose,
               {.kind = MapFactor::kOverNorm,
                .sums = sums.data,
                .parts = sums.parts,
                .floor = floor,
                .clamp = clamp_to_floor});
  }
  return absl::OkStatus();
}

absl::Status CudaMath::RowNorm(Stream& stream, const Matrix& x, bool columns, float eps,
                               float gamma, const Matrix& y) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckRowNorm(x, eps, gamma, y));
  if (IsEmpty(x)) return absl::OkStatus();
  WithElement(x.dtype, [&]<typename From>(From*) {
    WithElement(y.dtype, [&]<typename To>(To*) {
      const TypedMatrix<const From> from(x);
      const TypedMatrix<To> to(y);
      if (columns) {
        Enqueue(cuda_stream, NormalizeColumns<From, To>{from, eps, gamma, to});
      } else {
        Enqueue(cuda_stream, NormalizeRows<From, To>{from, eps, gamma, to});
      }
    });
  });
  return absl::OkStatus();
}

absl::Status CudaMath::ColumnSquares(Stream& stream, const Matrix& x, float unit, bool add,
                                     float* squares) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckColumnSquares(x, unit));
  if (x.cols == 0) return absl::OkStatus();
  Enqueue(cuda_stream, SumColumnSquares{TypedMatrix<const float>(x), unit, add, squares});
  return absl::OkStatus();
}

absl::Status CudaMath::DivideColumns(Stream& stream, const Matrix& x, const ColumnNorms& norms,
                                     const Matrix& y) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckDivideColumns(x, norms, y));
  if (IsEmpty(x)) return absl::OkStatus();
  Enqueue(cuda_stream, DivideByColumnNorms{TypedMatrix<const float>(x), norms.squares, norms.unit,
                                           norms.eps, norms.gamma, TypedMatrix<float>(y)});
  return absl::OkStatus();
}

absl::Status CudaMath::Convert(Stream& stream, const Matrix& x, bool transpose, const Matrix& y) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckConvert(x, transpose, y));
  if (!IsEmpty(x)) EnqueueMap(cuda_stream, x, y, transpose, {.kind = MapFactor::kOne});
  return absl::OkStatus();
}

absl::Status CudaMath::ShiftDiagonal(Stream& stream, const Matrix& x, float shift,
                                     const Matrix& y) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckShiftDiagonal(x, y));
  if (IsEmpty(x)) return absl::OkStatus();
  WithElement(x.dtype, [&]<typename T>(T*) {
    Enqueue(cuda_stream, ShiftDiagonalMatrix<T>{TypedMatrix<const T>(x), shift, TypedMatrix<T>(y)});
  });
  return absl::OkStatus();
}

absl::Status CudaMath::Norm(Stream& stream, std::int64_t count, const void* x, DType dtype,
                            float scale, float* norm) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckNorm(count, x, norm));
  WEFT_ASSIGN_OR_RETURN(const Sums sums, PlaceOfSums(cuda_stream, count, 1));
  EnqueueSums(cuda_stream, Matrix::Dense(const_cast<void*>(x), dtype, 1, count), sums);
  Enqueue(cuda_stream, NormOfSums{sums.data, sums.parts, scale, norm});
  return absl::OkStatus();
}

absl::Status CudaMath::Add(Stream& stream, std::int64_t count, const void* x, void* y,
                           DType dtype) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckAdd(count, x, y));
  WithElement(dtype, [&]<typename T>(T*) {
    Enqueue(cuda_stream, AddVector<T>{count, static_cast<const T*>(x), static_cast<T*>(y)});
  });
  return absl::OkStatus();
}

absl::Status CudaMath::Momentum(Stream& stream, std::int64_t count, const void* gradient,
                                DType gradient_type, float gradient_scale, float mu, bool nesterov,
                                float* momentum, float* update, const StepControl* control) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckMomentum(count, gradient, momentum, update));
  WithElement(gradient_type, [&]<typename G>(G*) {
    Enqueue(cuda_stream, MomentumVector<G>{count, static_cast<const G*>(gradient), gradient_scale,
                                           mu, nesterov, momentum, update, control});
  });
  return absl::OkStatus();
}

absl::Status CudaMath::Apply(Stream& stream, std::int64_t count, float decay, float step,
                             const float* direction, void* weight, DType weight_type,
                             const StepControl* control) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckApply(count, direction, weight));
  WithElement(weight_type, [&]<typename W>(W*) {
    Enqueue(cuda_stream,
            ApplyVector<W>{count, decay, step, direction, static_cast<W*>(weight), control});
  });
  return absl::OkStatus();
}

absl::Status CudaMath::ApplyMatrix(Stream& stream, float decay, float step, const Matrix& direction,
                                   const Matrix& weight, const StepControl* control) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckApplyMatrix(direction, weight));
  if (IsEmpty(weight)) return absl::OkStatus();
  WithElement(weight.dtype, [&]<typename W>(W*) {
    Enqueue(cuda_stream, ApplyTiles<W>{TypedMatrix<const float>(direction), decay, step,
                                       TypedMatrix<W>(weight), control});
  });
  return absl::OkStatus();
}

absl::Status CudaMath::AdamW(Stream& stream, const AdamWArguments& arguments) {
  CudaStream& cuda_stream = CudaStream::Of(stream);
  WEFT_RETURN_IF_ERROR(CheckAdamW(arguments));
  if (arguments.count == 0) return absl::OkStatus();
  WithElement(arguments.gradient_type, [&]<typename G>(G*) {
    WithElement(arguments.weight_type,
                [&]<typename W>(W*) { Enqueue(cuda_stream, AdamWVector<G, W>{arguments}); });
  });
  Enqueue(cuda_stream, CountStep{arguments.applied_steps, arguments.control});
  return absl::OkStatus();
}

absl::Status CudaMath::Tally(Stream& stream, const VerdictArguments& arguments) {
  WEFT_RETURN_IF_ERROR(CheckVerdict(arguments));
  Enqueue(CudaStream::Of(stream), TallyNorms{arguments});
  return absl::OkStatus();
}

absl::Status CudaMath::Decide(Stream& stream, const VerdictArguments& arguments) {
  WEFT_RETURN_IF_ERROR(CheckVerdict(arguments));
  Enqueue(CudaStream::Of(stream), DecideStep{arguments});
  return absl::OkStatus();
}

}  // namespace weft::device
