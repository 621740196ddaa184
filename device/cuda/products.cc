#include "device/cuda/products.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/product_check.h"

namespace weft::device {
namespace {

// Kernels load 16 bytes at a time; more is not asked of pointers, so that plans made without them
// serve nearly all.
constexpr int kAlignment = 16;

cudaDataType_t TypeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
  }
  return CUDA_R_32F;
}

absl::Status LtStatus(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(call, " failed: ", cublasLtGetStatusString(status));
  return status == CUBLAS_STATUS_ALLOC_FAILED ? absl::ResourceExhaustedError(text)
                                              : absl::InternalError(text);
}

// The library's matrices are column-major: what is row-major here is its own transpose there.
absl::Status MakeLayout(const Matrix& matrix, cublasLtMatrixLayout_t* layout) {
  WEFT_RETURN_IF_ERROR(LtStatus(
      cublasLtMatrixLayoutCreate(layout, TypeOf(matrix.dtype),
                                 static_cast<std::uint64_t>(matrix.cols),
                                 static_cast<std::uint64_t>(matrix.rows), matrix.row_stride),
      "cublasLtMatrixLayoutCreate"));
  const auto batch = static_cast<std::int32_t>(matrix.batch);
  const std::int64_t stride = matrix.batch > 1 ? matrix.batch_stride : 0;
  WEFT_RETURN_IF_ERROR(
      LtStatus(cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                sizeof(batch)),
               "cublasLtMatrixLayoutSetAttribute"));
  return LtStatus(
      cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                       &stride, sizeof(stride)),
      "cublasLtMatrixLayoutSetAttribute");
}

template <typename Value>
absl::Status Prefer(cublasLtMatmulPreference_t preference,
                    cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  return LtStatus(
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

// What both `alignment` and an address or distance in bytes are multiples of; null is as good as it
// gets.
int Lowered(int alignment, std::uintptr_t bytes) {
  while (bytes % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

int AlignmentOf(const Product& product) {
  int alignment = kAlignment;
  for (const Matrix* matrix : {&product.a, &product.b, &product.c, &product.d}) {
    if (matrix == &product.c && product.beta == 0) continue;
    alignment = Lowered(alignment, reinterpret_cast<std::uintptr_t>(matrix->data));
  }
  return alignment;
}

// `rows` x `cols` of each matrix of the batch.
Matrix Sub(Matrix matrix, std::int64_t rows, std::int64_t cols) {
  matrix.rows = rows;
  matrix.cols = cols;
  return matrix;
}

// `batch` matrices at a distance of `stride` elements in what was one.
Matrix Batch(Matrix matrix, std::int64_t batch, std::int64_t stride) {
  matrix.batch = batch;
  matrix.batch_stride = stride;
  return matrix;
}

// A part of a product, to be planned: its form, and at which rows of A, C and D it begins; B from
// its beginning.
struct PartForm {
  Product product;
  std::int64_t row = 0;
};

// Rows [row, row + height) of D up to column `width`.
PartForm Band(const Product& product, std::int64_t row, std::int64_t height, std::int64_t width) {
  PartForm band{product, row};
  band.product.a = Sub(product.a, height, product.a.cols);
  band.product.b = product.transpose_b ? Sub(product.b, width, product.b.cols)
                                       : Sub(product.b, product.b.rows, width);
  band.product.c = Sub(product.c, height, width);
  band.product.d = Sub(product.d, height, width);
  return band;
}

// The tiles (i, i - distance), as one batch.
PartForm Diagonal(const Product& product, std::int64_t tile, std::int64_t tiles,
                  std::int64_t distance) {
  PartForm diagonal = Band(product, distance * tile, tile, tile);
  Product& part = diagonal.product;
  const std::int64_t batch = tiles - distance;
  part.a = Batch(part.a, batch, tile * part.a.row_stride);
  part.b = Batch(part.b, batch, product.transpose_b ? tile * part.b.row_stride : tile);
  part.c = Batch(part.c, batch, tile * part.c.row_stride + tile);
  part.d = Batch(part.d, batch, tile * part.d.row_stride + tile);
  return diagonal;
}

// The lower triangle of a symmetric product, and of each diagonal tile all.
std::vector<PartForm> Triangle(const Product& product, std::int64_t tile) {
  std::vector<PartForm> parts;
  const std::int64_t rows = product.d.rows;
  if (product.d.batch > 1) {
    for (std::int64_t row = 0; row < rows; row += tile) {
      const std::int64_t height = std::min(tile, rows - row);
      parts.push_back(Band(product, row, height, row + height));
    }
    return parts;
  }
  const std::int64_t tiles = rows / tile;
  for (std::int64_t distance = 0; distance < tiles; ++distance) {
    parts.push_back(Diagonal(product, tile, tiles, distance));
  }
  if (const std::int64_t row = tiles * tile; row < rows) {
    parts.push_back(Band(product, row, rows - row, rows));
  }
  return parts;
}

}  // namespace

LibraryCall::~LibraryCall() {
  if (operation_ != nullptr) (void)cublasLtMatmulDescDestroy(operation_);
  for (cublasLtMatrixLayout_t layout : {left_, right_, c_, d_}) {
    if (layout != nullptr) (void)cublasLtMatrixLayoutDestroy(layout);
  }
}

absl::StatusOr<std::shared_ptr<const LibraryCall>> LibraryCall::Make(cublasLtHandle_t handle,
                                                                     const Product& product,
                                                                     const ProductOptions& options,
                                                                     int alignment) {
  std::shared_ptr<LibraryCall> call(new LibraryCall(product));
  WEFT_RETURN_IF_ERROR(call->Describe(options));
  WEFT_RETURN_IF_ERROR(call->Choose(handle, options, alignment));
  return call;
}

// D^T = op(B)^T A^T: the library's first operand is B.
absl::Status LibraryCall::Describe(const ProductOptions& options) {
  WEFT_RETURN_IF_ERROR(
      LtStatus(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate"));
  const cublasOperation_t of_left = product_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  WEFT_RETURN_IF_ERROR(
      LtStatus(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &of_left,
                                              sizeof(of_left)),
               "cublasLtMatmulDescSetAttribute"));
  if (options.processors > 0) {
    const auto processors = static_cast<std::int32_t>(options.processors);
    WEFT_RETURN_IF_ERROR(
        LtStatus(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
                                                &processors, sizeof(processors)),
                 "cublasLtMatmulDescSetAttribute"));
  }
  WEFT_RETURN_IF_ERROR(MakeLayout(product_.b, &left_));
  WEFT_RETURN_IF_ERROR(MakeLayout(product_.a, &right_));
  // A C that is not read is described as D.
  WEFT_RETURN_IF_ERROR(MakeLayout(product_.beta != 0 ? product_.c : product_.d, &c_));
  return MakeLayout(product_.d, &d_);
}

absl::Status LibraryCall::Choose(cublasLtHandle_t handle, const ProductOptions& options,
                                 int alignment) {
  cublasLtMatmulPreference_t preference = nullptr;
  WEFT_RETURN_IF_ERROR(
      LtStatus(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  absl::Status status =
      Prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, options.workspace_bytes);
  // The others add partial sums in D's type: more than one rounding.
  status.Update(Prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                       static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    status.Update(Prefer(preference, attribute, static_cast<std::uint32_t>(alignment)));
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  if (status.ok()) {
    const cublasStatus_t answer = cublasLtMatmulAlgoGetHeuristic(
        handle, operation_, left_, right_, c_, d_, preference, 1, &result, &found);
    if (answer != CUBLAS_STATUS_NOT_SUPPORTED) {
      status = LtStatus(answer, "cublasLtMatmulAlgoGetHeuristic");
    }
    if (status.ok() && found > 0) status = LtStatus(result.state, "cublasLtMatmulAlgoGetHeuristic");
  }
  (void)cublasLtMatmulPreferenceDestroy(preference);
  WEFT_RETURN_IF_ERROR(status);
  if (found == 0) {
    return absl::UnimplementedError(absl::StrCat(
        "cuBLASLt has no algorithm for a product of ", product_.a.rows, " x ", product_.a.cols,
        " and ", product_.b.rows, " x ", product_.b.cols, " (batch ", product_.d.batch, ")"));
  }
  algorithm_ = result.algo;
  workspace_bytes_ = result.workspaceSize;
  return absl::OkStatus();
}

absl::Status LibraryCall::Run(cublasLtHandle_t handle, const void* a, const void* b, const void* c,
                              void* d, void* workspace, cudaStream_t stream) const {
  return LtStatus(cublasLtMatmul(handle, operation_, &product_.alpha, b, left_, a, right_,
                                 &product_.beta, product_.beta != 0 ? c : d, c_, d, d_, &algorithm_,
                                 workspace, workspace_bytes_, stream),
                  "cublasLtMatmul");
}

absl::Status ProductPlan::Run(cublasLtHandle_t handle, const Product& product, void* workspace,
                              cudaStream_t stream) const {
  const auto at = [](const Matrix& matrix, std::int64_t bytes) {
    return static_cast<std::byte*>(matrix.data) + bytes;
  };
  for (const Part& part : parts_) {
    WEFT_RETURN_IF_ERROR(part.call->Run(handle, at(product.a, part.a), product.b.data,
                                        product.beta != 0 ? at(product.c, part.c) : nullptr,
                                        at(product.d, part.d), workspace, stream));
  }
  return absl::OkStatus();
}

std::int64_t TileRows(std::int64_t rows) {
  constexpr std::int64_t kQuantum = 128;  // of the library's own tiles
  constexpr std::int64_t kMost = 8;
  constexpr std::int64_t kSmallest = 512;
  const std::int64_t wanted = (rows + kMost - 1) / kMost;
  return std::max(kSmallest, (wanted + kQuantum - 1) / kQuantum * kQuantum);
}

absl::StatusOr<std::shared_ptr<const ProductPlan>> Products::Make(const Product& product,
                                                                  int alignment) {
  std::vector<PartForm> forms;
  if (product.symmetric && product.d.rows >= options_.min_triangle_rows) {
    forms =
        Triangle(product, options_.tile_rows > 0 ? options_.tile_rows : TileRows(product.d.rows));
  } else {
    forms.push_back({product});
  }
  const auto element = static_cast<std::int64_t>(SizeOf(product.d.dtype));
  std::vector<ProductPlan::Part> parts;
  for (const PartForm& form : forms) {
    ProductPlan::Part part;
    part.a = form.row * product.a.row_stride * element;
    part.c = form.row * product.c.row_stride * element;
    part.d = form.row * product.d.row_stride * element;
    int of_part = alignment;
    for (const std::int64_t offset : {part.a, part.c, part.d}) {
      of_part = Lowered(of_part, static_cast<std::uintptr_t>(offset));
    }
    WEFT_ASSIGN_OR_RETURN(part.call, LibraryCall::Make(handle_, form.product, options_, of_part));
    parts.push_back(std::move(part));
  }
  return std::make_shared<const ProductPlan>(std::move(parts));
}

absl::StatusOr<std::shared_ptr<const ProductPlan>> Products::Get(const Product& product) {
  const int alignment = AlignmentOf(product);
  const std::string key = absl::StrCat(FormOf(product), "@", alignment);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const ProductPlan> plan, Make(product, alignment));
  plans_.emplace(key, plan);
  return plan;
}

std::string ProductLibrary() {
  const std::size_t version = cublasLtGetVersion();
  return absl::StrCat("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace weft::device
