// Dense products on a GPU through cuBLASLt: plans, their cache, their execution.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/math.h"

namespace weft::device {

struct ProductOptions {
  // Multiprocessors that products may use; 0: all.
  int processors = 0;
  std::size_t workspace_bytes = std::size_t{32} << 20;
  // Symmetric results with fewer rows are computed in full and then mirrored: a triangle of a
  // smaller one has too few tiles to keep a large GPU busy, and others have measured no gain there.
  std::int64_t min_triangle_rows = 2048;
  // Sides of the triangle's tiles; 0: TileRows().
  std::int64_t tile_rows = 0;
};

// One call of the library: its descriptors and the algorithm chosen for them. Immutable.
class LibraryCall {
 public:
  // Of `product`, in full, for operands that lie at multiples of `alignment` bytes.
  static absl::StatusOr<std::shared_ptr<const LibraryCall>> Make(cublasLtHandle_t handle,
                                                                 const Product& product,
                                                                 const ProductOptions& options,
                                                                 int alignment);
  ~LibraryCall();
  LibraryCall(const LibraryCall&) = delete;
  LibraryCall& operator=(const LibraryCall&) = delete;

  // Enqueues it on the current device.
  absl::Status Run(cublasLtHandle_t handle, const void* a, const void* b, const void* c, void* d,
                   void* workspace, cudaStream_t stream) const;

 private:
  explicit LibraryCall(const Product& product) : product_(product) {}
  absl::Status Describe(const ProductOptions& options);
  absl::Status Choose(cublasLtHandle_t handle, const ProductOptions& options, int alignment);

  const Product product_;
  std::size_t workspace_bytes_ = 0;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t left_ = nullptr;
  cublasLtMatrixLayout_t right_ = nullptr;
  cublasLtMatrixLayout_t c_ = nullptr;
  cublasLtMatrixLayout_t d_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

// A product as calls of the library on parts of its operands. A symmetric one may leave out what
// lies above the diagonal: whoever runs it mirrors D. Immutable.
class ProductPlan {
 public:
  struct Part {
    // Where it begins in A, C and D, in bytes; in B at the beginning.
    std::int64_t a = 0;
    std::int64_t c = 0;
    std::int64_t d = 0;
    std::shared_ptr<const LibraryCall> call;
  };
  explicit ProductPlan(std::vector<Part> parts) : parts_(std::move(parts)) {}

  absl::Status Run(cublasLtHandle_t handle, const Product& product, void* workspace,
                   cudaStream_t stream) const;

 private:
  const std::vector<Part> parts_;
};

// Thread-safe.
class Products {
 public:
  explicit Products(cublasLtHandle_t handle, const ProductOptions& options)
      : handle_(handle), options_(options) {}

  // The plan of a product of this form and for pointers so aligned, made on the first call for it;
  // null pointers stand for well aligned ones. Requires a checked product with terms, and the
  // device to be current.
  absl::StatusOr<std::shared_ptr<const ProductPlan>> Get(const Product& product);

 private:
  absl::StatusOr<std::shared_ptr<const ProductPlan>> Make(const Product& product, int alignment);

  const cublasLtHandle_t handle_;
  const ProductOptions options_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const ProductPlan>> plans_;
};

// The sides of the tiles that the triangle of a symmetric result with so many rows is cut into.
std::int64_t TileRows(std::int64_t rows);

// "cuBLASLt 13.1.0"
std::string ProductLibrary();

}  // namespace weft::device
