#include "tests/fakes/cublaslt/problem.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <tuple>
#include <utility>

namespace weft::fakes::cublaslt {
namespace {

bool KnownType(std::uint32_t type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

bool FullLines(const Layout& layout) {
  const bool columns = layout.order == CUBLASLT_ORDER_COL;
  const std::uint64_t line = columns ? layout.rows : layout.cols;
  return layout.rows > 0 && layout.cols > 0 && layout.ld > 0 &&
         static_cast<std::uint64_t>(layout.ld) >= line && layout.batch >= 1;
}

bool Supported(const Layout& layout) {
  return (layout.order == CUBLASLT_ORDER_COL || layout.order == CUBLASLT_ORDER_ROW) &&
         layout.batch_mode == CUBLASLT_BATCH_MODE_STRIDED && layout.plane_offset == 0 &&
         KnownType(layout.type);
}

bool Supported(const Desc& desc) {
  const bool compute = desc.compute_type == CUBLAS_COMPUTE_32F ||
                       desc.compute_type == CUBLAS_COMPUTE_32F_PEDANTIC ||
                       desc.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32;
  return compute && desc.scale_type == CUDA_R_32F &&
         (desc.pointer_mode == CUBLASLT_POINTER_MODE_HOST ||
          desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) &&
         desc.transpose_a <= CUBLAS_OP_T && desc.transpose_b <= CUBLAS_OP_T &&
         desc.transpose_c == CUBLAS_OP_N && desc.fill_mode == CUBLAS_FILL_MODE_FULL &&
         desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
}

// FNV-1a of the words.
std::uint64_t Hash(std::initializer_list<std::uint64_t> words) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const std::uint64_t word : words) hash = (hash ^ word) * 1099511628211ULL;
  return hash;
}

const char* TypeText(std::uint32_t type) {
  return type == CUDA_R_32F ? "f32" : type == CUDA_R_16BF ? "bf16" : "f16";
}

}  // namespace

cublasStatus_t ReadProblem(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                           cublasLtMatrixLayout_t d, Problem* problem) {
  if (!Of(desc) || !Of(a) || !Of(b) || !Of(c) || !Of(d)) return CUBLAS_STATUS_INVALID_VALUE;
  *problem = {*Of(desc), *Of(a), *Of(b), *Of(c), *Of(d)};
  Problem& p = *problem;
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (!FullLines(*layout) || layout->batch != p.d.batch) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto dims = [](const Layout& layout, std::int32_t transpose) {
    const auto rows = static_cast<std::int64_t>(layout.rows);
    const auto cols = static_cast<std::int64_t>(layout.cols);
    return transpose == CUBLAS_OP_N ? std::pair(rows, cols) : std::pair(cols, rows);
  };
  std::int64_t inner = 0, columns = 0;
  std::tie(p.m, p.k) = dims(p.a, p.desc.transpose_a);
  std::tie(inner, columns) = dims(p.b, p.desc.transpose_b);
  std::tie(std::ignore, p.n) = dims(p.d, CUBLAS_OP_N);
  if (inner != p.k || columns != p.n || dims(p.d, CUBLAS_OP_N).first != p.m ||
      dims(p.c, CUBLAS_OP_N) != dims(p.d, CUBLAS_OP_N)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (p.a.type != p.b.type || p.c.type != p.d.type) return CUBLAS_STATUS_INVALID_VALUE;
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (!Supported(*layout)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (!Supported(p.desc)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.d.type != p.a.type && p.d.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

Algo Choose(const Problem& p, std::uint64_t max_workspace, std::uint32_t alignment) {
  const auto word = [](auto x) { return static_cast<std::uint64_t>(x); };
  Algo algo{.magic = kAlgoMagic,
            .sm_count_target = p.desc.sm_count_target,
            .alignment = std::min(alignment, std::uint32_t{16})};
  algo.problem =
      Hash({word(p.desc.compute_type), word(p.desc.transpose_a), word(p.desc.transpose_b),
            word(p.a.type), word(p.d.type), word(p.a.order), word(p.b.order), word(p.c.order),
            word(p.d.order), word(p.d.batch), word(p.m), word(p.n), word(p.k)});
  const std::uint64_t parts = p.k > std::max(p.m, p.n) ? 2 : 1;
  const std::uint64_t bytes = parts * word(p.m) * word(p.n) * word(p.d.batch) * sizeof(float);
  const std::uint64_t wanted = (bytes + 255) / 256 * 256;
  algo.workspace = wanted <= max_workspace ? wanted : 0;
  return algo;
}

std::string Text(const Problem& p) {
  std::string text = "matmul " + std::to_string(p.m) + 'x' + std::to_string(p.n) + 'x' +
                     std::to_string(p.k) + ' ' + TypeText(p.a.type);
  return p.d.batch == 1 ? text : text + ", " + std::to_string(p.d.batch) + " at once";
}

std::size_t ElementBytes(const Layout& layout) { return layout.type == CUDA_R_32F ? 4 : 2; }

void AddMatrix(std::vector<Access>& accesses, const Layout& layout, const void* data, bool write) {
  const bool columns = layout.order == CUBLASLT_ORDER_COL;
  const std::size_t size = ElementBytes(layout);
  for (std::int32_t i = 0; i < layout.batch; ++i) {
    // The same matrix again and again needs no second look.
    if (i > 0 && layout.batch_stride == 0) return;
    AddRows(
        accesses,
        static_cast<const char*>(data) + i * layout.batch_stride * static_cast<std::int64_t>(size),
        static_cast<std::int64_t>(columns ? layout.cols : layout.rows),
        (columns ? layout.rows : layout.cols) * size, static_cast<std::size_t>(layout.ld) * size,
        write);
  }
}

}  // namespace weft::fakes::cublaslt
