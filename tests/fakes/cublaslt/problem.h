// One product as its descriptors say it, and what the fake's heuristic thinks of it.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fakes/cublaslt/descriptors.h"
#include "tests/fakes/engine.h"

namespace weft::fakes::cublaslt {

struct Problem {
  Desc desc{};
  Layout a{}, b{}, c{}, d{};
  std::int64_t m = 0, n = 0, k = 0;
};

// CUBLAS_STATUS_INVALID_VALUE where arguments contradict each other, NOT_SUPPORTED where the fake
// has no kernel: it has fp32, bf16 and fp16 operands with fp32 arithmetic, in rows or columns.
cublasStatus_t ReadProblem(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                           cublasLtMatrixLayout_t d, Problem* problem);

// The one algorithm there is: with a workspace of one fp32 result, of two for long sums, where that
// is within `max_workspace`; else without.
Algo Choose(const Problem& problem, std::uint64_t max_workspace, std::uint32_t alignment);

std::string Text(const Problem& problem);

std::size_t ElementBytes(const Layout& layout);
// The lines of the layout that hold elements: its columns, or rows.
void AddMatrix(std::vector<Access>& accesses, const Layout& layout, const void* data, bool write);

// D = alpha op(A) op(B) + beta C in fp32: each element's sum in the order of k, rounded once.
void Multiply(const Problem& problem, float alpha, const void* a, const void* b, float beta,
              const void* c, void* d);

}  // namespace weft::fakes::cublaslt
