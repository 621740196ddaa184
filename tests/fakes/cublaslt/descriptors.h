// What is inside cublasLt's opaque structures.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

namespace weft::fakes::cublaslt {

// First in each structure, zero after its destroy.
inline constexpr std::uint64_t kLayoutMagic = 0x5745465451414c01;
inline constexpr std::uint64_t kDescMagic = 0x5745465451414c02;
inline constexpr std::uint64_t kPreferenceMagic = 0x5745465451414c03;
inline constexpr std::uint64_t kAlgoMagic = 0x5745465451414c04;

struct Layout {
  std::uint64_t magic;
  std::uint32_t type;  // cudaDataType_t
  std::int32_t order;  // cublasLtOrder_t
  std::uint64_t rows;
  std::uint64_t cols;
  std::int64_t ld;
  std::int32_t batch;
  std::uint32_t batch_mode;
  std::int64_t batch_stride;  // in elements
  std::int64_t plane_offset;
};

struct Desc {
  std::uint64_t magic;
  std::int32_t compute_type;
  std::int32_t scale_type;
  std::int32_t pointer_mode;
  std::int32_t transpose_a;
  std::int32_t transpose_b;
  std::int32_t transpose_c;
  std::int32_t fill_mode;
  std::uint32_t epilogue;
  std::int32_t sm_count_target;
};

struct Preference {
  std::uint64_t magic;
  std::uint32_t search_mode;
  std::uint32_t alignment[4];  // of A, B, C, D in bytes
  std::uint64_t max_workspace;
  // The fake adds everything up in fp32, whatever is allowed.
  std::uint32_t reduction_schemes;
};

struct Algo {
  std::uint64_t magic;
  std::uint64_t problem;  // a hash of what it was chosen for, but for its pointers
  std::uint64_t workspace;
  std::int32_t sm_count_target;
  std::uint32_t alignment;
};

// Null where `opaque` is null or holds something else.
Layout* Of(cublasLtMatrixLayout_t opaque);
Desc* Of(cublasLtMatmulDesc_t opaque);
Preference* Of(cublasLtMatmulPreference_t opaque);
const Algo* Of(const cublasLtMatmulAlgo_t* opaque);

// A kMisuse, and `status`.
cublasStatus_t Misuse(cublasStatus_t status, const std::string& text);

}  // namespace weft::fakes::cublaslt
