#include "tests/fakes/cublaslt/descriptors.h"

#include <cstddef>
#include <cstring>
#include <optional>
#include <type_traits>

#include "tests/fakes/engine.h"

namespace weft::fakes::cublaslt {
namespace {

template <typename Inside, typename Opaque>
Inside* OfKind(Opaque* opaque, std::uint64_t magic) {
  static_assert(sizeof(Inside) <= sizeof(*opaque));
  auto* const inside = reinterpret_cast<Inside*>(opaque);
  return inside != nullptr && inside->magic == magic ? inside : nullptr;
}

struct Field {
  std::size_t offset;
  std::size_t bytes;
};
#define WEFT_FIELD(type, member) \
  Field { offsetof(type, member), sizeof(type::member) }

std::optional<Field> FieldOf(cublasLtMatrixLayoutAttribute_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return WEFT_FIELD(Layout, type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return WEFT_FIELD(Layout, order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return WEFT_FIELD(Layout, rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return WEFT_FIELD(Layout, cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return WEFT_FIELD(Layout, ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return WEFT_FIELD(Layout, batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return WEFT_FIELD(Layout, batch_stride);
    case CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET:
      return WEFT_FIELD(Layout, plane_offset);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_MODE:
      return WEFT_FIELD(Layout, batch_mode);
  }
  return std::nullopt;
}

// What the fake does not know, the real library may: a test that sets it is told.
std::optional<Field> FieldOf(cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return WEFT_FIELD(Desc, compute_type);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return WEFT_FIELD(Desc, scale_type);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return WEFT_FIELD(Desc, pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return WEFT_FIELD(Desc, transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return WEFT_FIELD(Desc, transpose_b);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return WEFT_FIELD(Desc, transpose_c);
    case CUBLASLT_MATMUL_DESC_FILL_MODE:
      return WEFT_FIELD(Desc, fill_mode);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return WEFT_FIELD(Desc, epilogue);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return WEFT_FIELD(Desc, sm_count_target);
    default:
      return std::nullopt;
  }
}

std::optional<Field> FieldOf(cublasLtMatmulPreferenceAttributes_t attribute) {
  const auto alignment = [](std::size_t operand) {
    return Field{offsetof(Preference, alignment) + operand * sizeof(std::uint32_t),
                 sizeof(std::uint32_t)};
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return WEFT_FIELD(Preference, search_mode);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return WEFT_FIELD(Preference, max_workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return WEFT_FIELD(Preference, reduction_schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return alignment(0);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return alignment(1);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return alignment(2);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return alignment(3);
    default:
      return std::nullopt;
  }
}

template <typename Opaque, typename Attribute>
cublasStatus_t Set(Opaque* opaque, Attribute attribute, const void* from, std::size_t bytes) {
  auto* const inside = Of(opaque);
  const auto field = FieldOf(attribute);
  if (inside == nullptr || !field || from == nullptr || bytes != field->bytes) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(reinterpret_cast<char*>(inside) + field->offset, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque, typename Attribute>
cublasStatus_t Get(Opaque* opaque, Attribute attribute, void* to, std::size_t bytes,
                   std::size_t* written) {
  const auto* const inside = Of(opaque);
  const auto field = FieldOf(attribute);
  if (inside == nullptr || !field) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes == 0 ? written == nullptr : to == nullptr || bytes != field->bytes) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (bytes != 0) {
    std::memcpy(to, reinterpret_cast<const char*>(inside) + field->offset, bytes);
  }
  if (written != nullptr) *written = field->bytes;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque, typename... Arguments>
cublasStatus_t Create(Opaque** opaque, const char* what,
                      cublasStatus_t (*init)(Opaque*, std::size_t, Arguments...),
                      std::type_identity_t<Arguments>... arguments) {
  if (opaque == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto* const made = new Opaque;
  const cublasStatus_t status = init(made, sizeof *made, arguments...);
  if (status != CUBLAS_STATUS_SUCCESS) {
    delete made;
    return status;
  }
  Engine::Get().AddObject(made, what);
  *opaque = made;
  return CUBLAS_STATUS_SUCCESS;
}

// What Init made in the caller's memory is not destroyed.
template <typename Opaque>
cublasStatus_t Destroy(Opaque* opaque, const char* what) {
  if (opaque == nullptr) return CUBLAS_STATUS_SUCCESS;
  if (!Engine::Get().RemoveObject(opaque)) {
    return Misuse(CUBLAS_STATUS_INVALID_VALUE,
                  std::string("destroys what is no ") + what + ", or one for the second time");
  }
  std::memset(opaque, 0, sizeof *opaque);
  delete opaque;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque, typename Inside>
cublasStatus_t Fill(Opaque* opaque, std::size_t bytes, const Inside& inside) {
  if (opaque == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes < sizeof *opaque) return CUBLAS_STATUS_ALLOC_FAILED;
  std::memset(opaque, 0, sizeof *opaque);
  std::memcpy(opaque, &inside, sizeof inside);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

Layout* Of(cublasLtMatrixLayout_t opaque) { return OfKind<Layout>(opaque, kLayoutMagic); }
Desc* Of(cublasLtMatmulDesc_t opaque) { return OfKind<Desc>(opaque, kDescMagic); }
Preference* Of(cublasLtMatmulPreference_t opaque) {
  return OfKind<Preference>(opaque, kPreferenceMagic);
}
const Algo* Of(const cublasLtMatmulAlgo_t* opaque) {
  return OfKind<const Algo>(opaque, kAlgoMagic);
}

cublasStatus_t Misuse(cublasStatus_t status, const std::string& text) {
  Engine::Get().Report(FaultKind::kMisuse, "cublasLt: " + text);
  return status;
}

}  // namespace weft::fakes::cublaslt

using namespace weft::fakes::cublaslt;

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matLayout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  return Fill(matLayout, size,
              Layout{kLayoutMagic, static_cast<std::uint32_t>(type), CUBLASLT_ORDER_COL, rows, cols,
                     ld, 1, CUBLASLT_BATCH_MODE_STRIDED, 0, 0});
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  return Create(matLayout, "cublasLt layout", cublasLtMatrixLayoutInit_internal, type, rows, cols,
                ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  return Destroy(matLayout, "layout");
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void* buf, size_t sizeInBytes) {
  return Set(matLayout, attr, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr, void* buf,
                                                size_t sizeInBytes, size_t* sizeWritten) {
  return Get(matLayout, attr, buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t matmulDesc, size_t size,
                                               cublasComputeType_t computeType,
                                               cudaDataType_t scaleType) {
  return Fill(matmulDesc, size,
              Desc{kDescMagic, computeType, scaleType, CUBLASLT_POINTER_MODE_HOST, CUBLAS_OP_N,
                   CUBLAS_OP_N, CUBLAS_OP_N, CUBLAS_FILL_MODE_FULL, CUBLASLT_EPILOGUE_DEFAULT, 0});
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc,
                                        cublasComputeType_t computeType, cudaDataType_t scaleType) {
  return Create(matmulDesc, "cublasLt matmul descriptor", cublasLtMatmulDescInit_internal,
                computeType, scaleType);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  return Destroy(matmulDesc, "matmul descriptor");
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, const void* buf,
                                              size_t sizeInBytes) {
  return Set(matmulDesc, attr, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, void* buf,
                                              size_t sizeInBytes, size_t* sizeWritten) {
  return Get(matmulDesc, attr, buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref, size_t size) {
  return Fill(pref, size,
              Preference{kPreferenceMagic,
                         CUBLASLT_SEARCH_BEST_FIT,
                         {256, 256, 256, 256},
                         0,
                         CUBLASLT_REDUCTION_SCHEME_MASK});
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  return Create(pref, "cublasLt preference", cublasLtMatmulPreferenceInit_internal);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  return Destroy(pref, "preference");
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void* buf, size_t sizeInBytes) {
  return Set(pref, attr, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    void* buf, size_t sizeInBytes,
                                                    size_t* sizeWritten) {
  return Get(pref, attr, buf, sizeInBytes, sizeWritten);
}
